/* Tests of launches and stream memory operations, also in graphs; see README.md. */
#include "selftest_driver.h"

#include "kernels/kernel.h"

/* ---- the driver's functions ---- */

static CUresult (*launch_kernel)(const CUlaunchConfig *, CUfunction, void **, void **);
static CUresult (*launch_plain)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                CUstream, void **, void **);
static CUresult (*batch)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);
static CUresult (*wait32)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static CUresult (*wait64)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
static CUresult (*write32)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
static CUresult (*write64)(CUstream, CUdeviceptr, cuuint64_t, unsigned);

static void find_functions(void) {
  launch_kernel = entry("cuLaunchKernelEx", 11060);
  launch_plain = entry("cuLaunchKernel", 4000);
  batch = entry("cuStreamBatchMemOp", 11070);
  wait32 = entry("cuStreamWaitValue32", 11070);
  wait64 = entry("cuStreamWaitValue64", 11070);
  write32 = entry("cuStreamWriteValue32", 11070);
  write64 = entry("cuStreamWriteValue64", 11070);
}

/* ---- kernels; the stubs are never called, only their names count ---- */

#define KERNEL_STUB(name)                                                                          \
  __attribute__((visibility("default"), noipa)) void name(void) { __asm__ volatile("nop # " #name); }
KERNEL_STUB(nccl4j_test_meet)
KERNEL_STUB(nccl4j_test_store)

/* Parameters: a counter and how many kernels must have arrived before any of them ends. */
struct meeting {
  atomic_int *arrived;
  int kernels;
};

static bool meet(const void *arguments, size_t bytes, int *step) {
  const struct meeting *m = arguments;
  SAME(sizeof *m, bytes);
  if (*step == 0) {
    *step = 1;
    atomic_fetch_add(m->arrived, 1);
  }
  return atomic_load(m->arrived) >= m->kernels;
}

/* Parameter: an address, whose value it doubles and increments. Takes two polls. */
static bool store(const void *arguments, size_t bytes, int *step) {
  int *at;
  SAME(sizeof at, bytes);
  memcpy(&at, arguments, sizeof at);
  if (++*step < 2) return false;
  *at = 2 * *at + 1;
  return true;
}

static CUresult launch(void (*kernel)(void), const void *arguments, size_t bytes, cudaStream_t stream,
                       cudaEvent_t begun) {
  CUfunction function;
  OK(cudaGetFuncBySymbol(&function, (const void *)kernel));
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CUlaunchAttribute attributes[] = {
      {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}},
      {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, .value.launchCompletionEvent.event = begun},
  };
  CUlaunchConfig config = {
      .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1, .hStream = stream,
      .attrs = attributes, .numAttrs = begun ? 2 : 1};
  return launch_kernel(&config, function, NULL, extra);
}

/* Two kernels of one device wait for each other; the event of a launch does not wait for the kernel's end. */
static void launches(void) {
  static atomic_int arrived;
  struct meeting m = {&arrived, 2};
  cudaStream_t a = stream_new(), b = stream_new();
  cudaEvent_t begun = event_new(), ended = event_new();
  uint32_t *gate;
  OK(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocMapped));
  *gate = 0;
  OK(wait32(a, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(launch(nccl4j_test_meet, &m, sizeof m, a, begun));
  OK(cudaEventRecord(ended, a));
  SAME(cudaErrorNotReady, cudaEventQuery(begun));
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  OK(cudaEventSynchronize(begun));
  nap();
  SAME(cudaErrorNotReady, cudaEventQuery(ended));
  SAME(cudaErrorNotReady, cudaStreamQuery(a));
  OK(launch(nccl4j_test_meet, &m, sizeof m, b, NULL));
  OK(cudaStreamSynchronize(b));
  OK(cudaEventSynchronize(ended));
  SAME(2, atomic_load(&arrived));
  OK(cudaFreeHost(gate));

  int *value;
  OK(cudaHostAlloc((void **)&value, sizeof *value, cudaHostAllocMapped));
  *value = 5;
  void *parameters[] = {&value};
  CUfunction function;
  OK(cudaGetFuncBySymbol(&function, (const void *)nccl4j_test_store));
  OK(launch_plain(function, 1, 1, 1, 32, 1, 1, 0, a, parameters, NULL));
  OK(cudaLaunchKernel((const void *)nccl4j_test_store, (dim3){1, 1, 1}, (dim3){32, 1, 1}, parameters, 0, a));
  cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}, .stream = a};
  OK(cudaLaunchKernelExC(&config, (const void *)nccl4j_test_store, parameters));
  OK(cudaStreamSynchronize(a));
  SAME(47, *value);
  OK(cudaFreeHost(value));
  OK(cudaEventDestroy(begun));
  OK(cudaEventDestroy(ended));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
}

static void refused_launches(void) {
  static int value;
  int *at = &value;
  void *parameters[] = {&at};
  CUfunction function;
  cudaStream_t stream = stream_new();
  SAME(cudaErrorInvalidDeviceFunction, cudaGetFuncBySymbol(&function, &value));
  OK(cudaGetFuncBySymbol(&function, (const void *)nccl4j_test_store));
  SAME(CUDA_ERROR_INVALID_VALUE, launch_plain(function, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, NULL));
  SAME(CUDA_ERROR_INVALID_VALUE, launch_plain(function, 0, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
  SAME(CUDA_ERROR_INVALID_VALUE, launch_plain(function, 1, 1, 1, 32, 1, 1, 100000, stream, parameters, NULL));
  SAME(cudaErrorInvalidValue, cudaFuncSetAttribute((const void *)nccl4j_test_store,
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
  OK(cudaFuncSetAttribute((const void *)nccl4j_test_store, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
  struct cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, (const void *)nccl4j_test_store));
  SAME(100000, attributes.maxDynamicSharedSizeBytes);
  OK(launch_plain(function, 1, 1, 1, 32, 1, 1, 100000, stream, parameters, NULL));
  OK(cudaSetDevice(1));
  SAME(CUDA_ERROR_INVALID_HANDLE, launch_plain(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
  OK(cudaSetDevice(0));
  OK(cudaStreamSynchronize(stream));
  SAME(1, value);
  OK(cudaStreamDestroy(stream));
}

/* ---- stream memory operations ---- */

static void memory_operations(void) {
  uint64_t *words;
  cudaStream_t a = stream_new(), b = stream_new();
  OK(cudaMalloc((void **)&words, 4 * sizeof *words));
  OK(cudaMemset(words, 0, 4 * sizeof *words));
  CUdeviceptr at[4];
  for (int i = 0; i < 4; i++) at[i] = (CUdeviceptr)&words[i];

  OK(wait64(a, at[0], UINT64_C(5) << 32, CU_STREAM_WAIT_VALUE_GEQ));
  OK(write32(a, at[1], 7, 0));
  OK(write64(b, at[0], (UINT64_C(5) << 32) - 1, 0));
  OK(cudaStreamSynchronize(b));
  nap();
  SAME(cudaErrorNotReady, cudaStreamQuery(a));
  SAME(0, __atomic_load_n(&words[1], __ATOMIC_ACQUIRE));
  OK(write64(b, at[0], UINT64_C(6) << 32, 0));
  OK(cudaStreamSynchronize(a));
  SAME(7, words[1]);

  OK(write32(b, at[2], UINT32_MAX, 0)); /* before 3 in the cyclic order of 32 bits */
  OK(cudaStreamSynchronize(b));
  OK(wait32(a, at[2], 3, CU_STREAM_WAIT_VALUE_GEQ));
  nap();
  SAME(cudaErrorNotReady, cudaStreamQuery(a));
  OK(write32(b, at[2], 4, 0));
  OK(cudaStreamSynchronize(a));
  OK(wait32(a, at[2], 6, CU_STREAM_WAIT_VALUE_AND));
  OK(wait32(a, at[2], UINT32_MAX - 8, CU_STREAM_WAIT_VALUE_NOR));
  OK(wait32(a, at[2], 4, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH));
  OK(cudaStreamSynchronize(a));

  CUstreamBatchMemOpParams operations[] = {
      {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, at[3], {.value64 = 9}, CU_STREAM_WAIT_VALUE_EQ, 0}},
      {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, at[3], {.value64 = 1}, 0, 0}},
      {.memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, 0}},
      {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, at[1], {.value = 8}, 0, 0}},
  };
  OK(batch(a, 4, operations, 0));
  OK(write64(b, at[3], 9, 0));
  OK(cudaStreamSynchronize(a));
  SAME(1, words[3]);
  SAME(8, words[1]);

  SAME(CUDA_ERROR_INVALID_VALUE, write64(a, at[0] + 4, 0, 0));
  SAME(CUDA_ERROR_INVALID_VALUE, write64(a, at[3] + 8, 0, 0));
  SAME(CUDA_ERROR_INVALID_VALUE, wait32(a, at[3], 0, 4));
  operations[3].operation = (CUstreamBatchMemOpType)77;
  SAME(CUDA_ERROR_INVALID_VALUE, batch(a, 4, operations, 0));
  OK(cudaStreamSynchronize(a));
  SAME(1, words[3]);
  OK(cudaFree(words));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
}

/* ---- graphs ---- */

/* A launch that is added to a graph by hand, and one that is captured, before a stream memory operation. */
static void nodes_of_graphs(void) {
  int *value;
  cudaGraph_t graph;
  cudaGraphNode_t node;
  cudaGraphExec_t exec;
  cudaStream_t stream = stream_new();
  enum cudaGraphNodeType type;
  OK(cudaHostAlloc((void **)&value, sizeof *value, cudaHostAllocMapped));
  *value = 5;
  void *parameters[] = {&value};
  struct cudaKernelNodeParams request = {
      .func = (void *)nccl4j_test_store, .gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}, .kernelParams = parameters};
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &request));
  OK(cudaGraphNodeGetType(node, &type));
  SAME(cudaGraphNodeTypeKernel, type);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  SAME(11, *value);
  OK(cudaGraphExecDestroy(exec));

  uint32_t *word;
  OK(cudaHostAlloc((void **)&word, sizeof *word, cudaHostAllocMapped));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(launch(nccl4j_test_store, &value, sizeof value, stream, NULL));
  OK(write32(stream, (CUdeviceptr)word, 77, 0));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 2; i++) {
    *word = 0;
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    SAME(77, *word);
  }
  SAME(47, *value);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFreeHost(value));
  OK(cudaFreeHost(word));
  OK(cudaStreamDestroy(stream));
}

/* The event of a launch, captured, is an edge on the kernel's beginning: both kernels must run at once. */
static void edges_on_beginnings(void) {
  static atomic_int arrived;
  struct meeting m = {&arrived, 2};
  cudaStream_t origin = stream_new(), fork = stream_new();
  cudaEvent_t begun = event_new(), ended = event_new();
  enum cudaStreamCaptureStatus status;
  const cudaGraphNode_t *nodes;
  const cudaGraphEdgeData *data;
  size_t count;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
  OK(launch(nccl4j_test_meet, &m, sizeof m, origin, begun));
  OK(cudaStreamWaitEvent(fork, begun, 0));
  SAME(cudaErrorLossyQuery, cudaStreamGetCaptureInfo(fork, &status, NULL, NULL, &nodes, NULL, &count));
  OK(cudaStreamGetCaptureInfo(fork, &status, NULL, NULL, &nodes, &data, &count));
  SAME(1, count);
  SAME(cudaGraphKernelNodePortLaunchCompletion, data[0].from_port);
  OK(cudaStreamGetCaptureInfo(origin, &status, NULL, NULL, &nodes, NULL, &count));
  SAME(1, count);
  OK(launch(nccl4j_test_meet, &m, sizeof m, fork, NULL));
  OK(cudaEventRecord(ended, fork));
  OK(cudaStreamWaitEvent(origin, ended, 0));
  OK(cudaStreamEndCapture(origin, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, origin));
  OK(cudaStreamSynchronize(origin));
  SAME(2, atomic_load(&arrived));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaStreamDestroy(origin));
  OK(cudaStreamDestroy(fork));
  OK(cudaEventDestroy(begun));
  OK(cudaEventDestroy(ended));
}

int main(void) {
  nccl4j_standin_kernel("nccl4j_test_meet", meet);
  nccl4j_standin_kernel("nccl4j_test_store", store);
  find_functions();
  launches();
  refused_launches();
  memory_operations();
  nodes_of_graphs();
  edges_on_beginnings();
  printf("selftest_launch: ok\n");
  return 0;
}
