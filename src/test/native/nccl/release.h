/*
 * The NCCL release that this library emulates: the one whose headers it is compiled against, or an older one (build
 * --nccl). The build omits the symbols that an older release lacks; the other differences are here.
 */
#ifndef NCCL4J_STANDIN_RELEASE_H
#define NCCL4J_STANDIN_RELEASE_H

#include <nccl.h>
#include <stddef.h>

#ifndef STANDIN_RELEASE
#define STANDIN_RELEASE NCCL_VERSION_CODE
#endif

/* The float8 types came with 2.24. */
#define RELEASE_TYPES (STANDIN_RELEASE >= NCCL_VERSION(2, 24, 0) ? (int)ncclNumTypes : (int)ncclFloat8e4m3)

/* Returns how many bytes of a newer ncclConfig_t the release reads; it silently ignores the rest. */
static inline size_t release_config_bytes(void) {
  if (STANDIN_RELEASE < NCCL_VERSION(2, 26, 0)) return offsetof(ncclConfig_t, trafficClass);
  if (STANDIN_RELEASE < NCCL_VERSION(2, 27, 0)) return offsetof(ncclConfig_t, commName);
  if (STANDIN_RELEASE < NCCL_VERSION(2, 28, 0)) return offsetof(ncclConfig_t, nChannelsPerNetPeer);
  if (STANDIN_RELEASE < NCCL_VERSION(2, 29, 0)) return offsetof(ncclConfig_t, graphUsageMode);
  if (STANDIN_RELEASE < NCCL_VERSION(2, 30, 0)) return offsetof(ncclConfig_t, maxP2pPeers);
  return sizeof(ncclConfig_t);
}

#endif
