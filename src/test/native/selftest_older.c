/*
 * The test of the stand-in built as an older NCCL (build --nccl): version, symbols, the fields of a configuration that
 * it reads, types, and a collective. STANDIN_RELEASE is the expected release.
 */
#include "standin.h"

#define CHECK_DETAIL ncclGetLastError(NULL)
#include "selftest_check.h"

#include <dlfcn.h>

static void version(void) {
  int version;
  OK(ncclGetVersion(&version));
  SAME(STANDIN_RELEASE, version);
}

/* One function of each release that added some; headers/nccl.releases has all of them. */
static void symbols(void) {
  static const struct {
    const char *name;
    int since;
  } functions[] = {
      {"ncclAllReduce", 0},
      {"ncclCommSplit", NCCL_VERSION(2, 18, 1)},
      {"ncclMemAlloc", NCCL_VERSION(2, 19, 1)},
      {"pncclMemAlloc", NCCL_VERSION(2, 19, 1)},
      {"ncclGroupSimulateEnd", NCCL_VERSION(2, 22, 3)},
      {"ncclCommInitRankScalable", NCCL_VERSION(2, 23, 4)},
      {"ncclCommShrink", NCCL_VERSION(2, 27, 3)},
      {"ncclAlltoAll", NCCL_VERSION(2, 28, 3)},
      {"pncclAlltoAll", NCCL_VERSION(2, 28, 3)},
      {"ncclCommRevoke", NCCL_VERSION(2, 28, 7)},
      {"ncclCommGrow", NCCL_VERSION(2, 29, 2)},
      {"ncclCommSuspend", NCCL_VERSION(2, 29, 7)},
      {"ncclParamBind", NCCL_VERSION(2, 30, 4)},
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    bool there = dlsym(RTLD_DEFAULT, functions[i].name) != NULL;
    if (there == (STANDIN_RELEASE >= functions[i].since)) continue;
    fprintf(stderr, "%s is %s in %d\n", functions[i].name, there ? "exported" : "missing", STANDIN_RELEASE);
    exit(1);
  }
}

static ncclResult_t made_with(ncclConfig_t config) {
  ncclUniqueId id;
  ncclComm_t comm;
  OK(ncclGetUniqueId(&id));
  ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  if (result == ncclSuccess) OK(ncclCommDestroy(comm));
  return result;
}

/* A value that every release refuses shows whether a field was read. */
static void configurations(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  OK(made_with(config));
  config.splitShare = 7;
  SAME(ncclInvalidArgument, made_with(config));
  config.size = offsetof(ncclConfig_t, splitShare);
  OK(made_with(config)); /* a caller older than the library */
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.shrinkShare = 7;
  SAME(STANDIN_RELEASE < NCCL_VERSION(2, 27, 0) ? ncclSuccess : ncclInvalidArgument, made_with(config));
  config.shrinkShare = NCCL_CONFIG_UNDEF_INT;
  config.maxCTAs = 0;
  SAME(ncclInvalidArgument, made_with(config));
}

static void types(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  int *value, three = 3, result = 0;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(cudaMalloc((void **)&value, sizeof *value));
  OK(cudaMemcpyAsync(value, &three, sizeof three, cudaMemcpyHostToDevice, stream));
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comm, stream));
  OK(cudaMemcpyAsync(&result, value, sizeof result, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  SAME(3, result);
  ncclResult_t float8 = STANDIN_RELEASE < NCCL_VERSION(2, 24, 0) ? ncclInvalidArgument : ncclSuccess;
  OK(ncclBroadcast(value, value, 1, ncclBfloat16, 0, comm, stream));
  SAME(float8, ncclBroadcast(value, value, 1, ncclFloat8e4m3, 0, comm, stream));
  SAME(float8, ncclBroadcast(value, value, 1, ncclFloat8e5m2, 0, comm, stream));
  SAME(ncclInvalidArgument, ncclBroadcast(value, value, 1, ncclNumTypes, 0, comm, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(value));
  OK(ncclCommDestroy(comm));
  OK(cudaStreamDestroy(stream));
}

int main(void) {
  version();
  symbols();
  configurations();
  types();
  printf("selftest: %s, as NCCL %d: ok\n", nccl4j_standin_name(), STANDIN_RELEASE);
  return 0;
}
