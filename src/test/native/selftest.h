/* What the self-tests of the CUDA share. */
#ifndef NCCL4J_SELFTEST_H
#define NCCL4J_SELFTEST_H

#include "selftest_check.h"
#include "standin.h"

#include <time.h>

/* Time for something that must not happen. */
static inline void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); }

/* A host function that ends when its gate, an atomic_bool, is open. */
static inline void wait_for_gate(void *gate) {
  while (!atomic_load((atomic_bool *)gate)) usleep(1000);
}

static inline cudaStream_t stream_new(void) {
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

static inline cudaEvent_t event_new(void) {
  cudaEvent_t event;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

#endif
