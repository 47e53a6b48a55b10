/* Tests of launches, stream memory operations, copies in batches, captures and graphs; see README.md. */
#include "selftest.h"

#include "kernels/kernel.h"

#include <pthread.h>
#include <unistd.h>

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

/* ---- copies ---- */

/* A small copy of pageable memory is done at once if nothing is before it in the stream; otherwise it waits, and its
 * source was read by the call. */
static void small_copies(void) {
  int *device, value = 1;
  uint32_t *gate;
  cudaStream_t stream = stream_new();
  cudaEvent_t event = event_new();
  OK(cudaMalloc((void **)&device, sizeof *device));
  OK(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocMapped));
  *gate = 0;
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  OK(cudaEventRecord(event, stream));
  OK(cudaEventQuery(event));
  SAME(1, *device);
  OK(wait32(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  value = 2;
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  value = 3;
  OK(cudaEventRecord(event, stream));
  nap();
  SAME(cudaErrorNotReady, cudaEventQuery(event));
  SAME(1, __atomic_load_n(device, __ATOMIC_ACQUIRE));
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  OK(cudaEventSynchronize(event));
  SAME(2, *device);
  SAME(0, nccl4j_standin_fail_stream(stream, cudaErrorLaunchFailure)); /* nothing runs at once in a failed stream */
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  OK(cudaEventRecord(event, stream));
  SAME(cudaErrorLaunchFailure, cudaEventSynchronize(event));
  SAME(2, *device);
  OK(cudaEventDestroy(event));
  OK(cudaFree(device));
  OK(cudaFreeHost(gate));
  OK(cudaStreamDestroy(stream));
}

static void batches(void) {
  int values[] = {1, 2, 3, 4}, *device, found[4] = {0};
  cudaStream_t stream = stream_new();
  OK(cudaMalloc((void **)&device, sizeof values));
  uint64_t *gate;
  OK(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocMapped));
  *gate = 0;
  void *to[] = {device, device + 1, device + 2, device + 3};
  const void *from[] = {values, values + 1, values + 2, values + 3};
  size_t sizes[] = {sizeof(int), sizeof(int), sizeof(int), sizeof(int)}, first[] = {0, 2};
  struct cudaMemcpyAttributes attributes[] = {
      {.srcAccessOrder = cudaMemcpySrcAccessOrderStream, .flags = cudaMemcpyFlagPreferOverlapWithCompute},
      {.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall},
  };
  OK(wait64(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 2, stream));
  for (int i = 0; i < 4; i++) values[i] += 10; /* read in stream order by the first two only */
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemcpy(found, device, sizeof found, cudaMemcpyDeviceToHost));
  SAME(11, found[0]);
  SAME(12, found[1]);
  SAME(3, found[2]);
  SAME(4, found[3]);

  SAME(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 2, NULL));
  SAME(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 0, stream));
  first[1] = 4;
  SAME(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 2, stream));
  sizes[3] = 2 * sizeof(int); /* beyond the allocation's end */
  SAME(cudaErrorInvalidValue, cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 1, stream));
  OK(cudaFree(device));
  OK(cudaFreeHost(gate));
  OK(cudaStreamDestroy(stream));
}

static void *enqueues(void *arguments) {
  void **of = arguments;
  OK(cudaMemsetAsync(of[0], 1, 4, of[1]));
  __atomic_store_n((int *)of[2], 1, __ATOMIC_RELEASE);
  return NULL;
}

static void full_queue(void) {
  int *device, done = 0;
  uint64_t *gate;
  pthread_t thread;
  cudaStream_t stream = stream_new();
  OK(cudaMalloc((void **)&device, sizeof *device));
  OK(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocMapped));
  *gate = 0;
  OK(wait64(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  nccl4j_standin_queue(1);
  OK(pthread_create(&thread, NULL, enqueues, (void *[]){device, stream, &done}));
  usleep(50000);
  SAME(0, __atomic_load_n(&done, __ATOMIC_ACQUIRE));
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  OK(pthread_join(thread, NULL));
  nccl4j_standin_reset();
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(device));
  OK(cudaFreeHost(gate));
  OK(cudaStreamDestroy(stream));
}

static void last_error_of_queries(void) {
  uint64_t *gate;
  cudaStream_t stream = stream_new();
  OK(cudaHostAlloc((void **)&gate, sizeof *gate, cudaHostAllocMapped));
  *gate = 0;
  OK(wait64(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  SAME(cudaErrorInvalidValue, cudaStreamCreateWithFlags(NULL, 0));
  nccl4j_standin_not_ready(0);
  SAME(cudaErrorNotReady, cudaStreamQuery(stream));
  SAME(cudaErrorInvalidValue, cudaPeekAtLastError());
  nccl4j_standin_reset();
  SAME(cudaErrorNotReady, cudaStreamQuery(stream));
  SAME(cudaErrorNotReady, cudaGetLastError());
  SAME(cudaSuccess, cudaGetLastError());
  __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
  OK(cudaStreamSynchronize(stream));
  OK(cudaFreeHost(gate));
  OK(cudaStreamDestroy(stream));
}

int main(void) {
  nccl4j_standin_kernel("nccl4j_test_meet", meet);
  nccl4j_standin_kernel("nccl4j_test_store", store);
  find_functions();
  launches();
  refused_launches();
  memory_operations();
  small_copies();
  batches();
  full_queue();
  last_error_of_queries();
  printf("selftest_stream: ok\n");
  return 0;
}
