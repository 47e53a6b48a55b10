/* Tests of copies, full queues and queries; see README.md. */
#include "selftest.h"

#include <pthread.h>

/* A small copy of pageable memory is done at once if nothing is before it in the stream; otherwise it waits, and its
 * source was read by the call. */
static void small_copies(void) {
  static atomic_bool gate;
  int *device, value = 1;
  cudaStream_t stream = stream_new();
  cudaEvent_t event = event_new();
  OK(cudaMalloc((void **)&device, sizeof *device));
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  OK(cudaEventRecord(event, stream));
  OK(cudaEventQuery(event));
  SAME(1, *device);
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  value = 2;
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  value = 3;
  OK(cudaEventRecord(event, stream));
  nap();
  SAME(cudaErrorNotReady, cudaEventQuery(event));
  SAME(1, __atomic_load_n(device, __ATOMIC_ACQUIRE));
  atomic_store(&gate, true);
  OK(cudaEventSynchronize(event));
  SAME(2, *device);
  SAME(0, nccl4j_standin_fail_stream(stream, cudaErrorLaunchFailure)); /* nothing runs at once in a failed stream */
  OK(cudaMemcpyAsync(device, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  OK(cudaEventRecord(event, stream));
  SAME(cudaErrorLaunchFailure, cudaEventSynchronize(event));
  SAME(2, *device);
  OK(cudaEventDestroy(event));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}

static void batches(void) {
  static atomic_bool gate;
  int values[] = {1, 2, 3, 4}, *device, found[4] = {0};
  cudaStream_t stream = stream_new();
  OK(cudaMalloc((void **)&device, sizeof values));
  void *to[] = {device, device + 1, device + 2, device + 3};
  const void *from[] = {values, values + 1, values + 2, values + 3};
  size_t sizes[] = {sizeof(int), sizeof(int), sizeof(int), sizeof(int)}, first[] = {0, 2};
  struct cudaMemcpyAttributes attributes[] = {
      {.srcAccessOrder = cudaMemcpySrcAccessOrderStream, .flags = cudaMemcpyFlagPreferOverlapWithCompute},
      {.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall},
  };
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  OK(cudaMemcpyBatchAsync(to, from, sizes, 4, attributes, first, 2, stream));
  for (int i = 0; i < 4; i++) values[i] += 10; /* read in stream order by the first two only */
  atomic_store(&gate, true);
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
  OK(cudaStreamDestroy(stream));
}

static void *enqueues(void *arguments) {
  void **of = arguments;
  OK(cudaMemsetAsync(of[0], 1, 4, of[1]));
  __atomic_store_n((int *)of[2], 1, __ATOMIC_RELEASE);
  return NULL;
}

static void full_queue(void) {
  static atomic_bool gate;
  int *device, done = 0;
  pthread_t thread;
  cudaStream_t stream = stream_new();
  OK(cudaMalloc((void **)&device, sizeof *device));
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  nccl4j_standin_queue(1);
  void *arguments[] = {device, stream, &done}; /* declared here, since OK is a block */
  OK(pthread_create(&thread, NULL, enqueues, arguments));
  usleep(50000);
  SAME(0, __atomic_load_n(&done, __ATOMIC_ACQUIRE));
  atomic_store(&gate, true);
  OK(pthread_join(thread, NULL));
  nccl4j_standin_reset();
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}

static void last_error_of_queries(void) {
  static atomic_bool gate;
  cudaStream_t stream = stream_new();
  OK(cudaLaunchHostFunc(stream, wait_for_gate, &gate));
  SAME(cudaErrorInvalidValue, cudaStreamCreateWithFlags(NULL, 0));
  nccl4j_standin_not_ready(0);
  SAME(cudaErrorNotReady, cudaStreamQuery(stream));
  SAME(cudaErrorInvalidValue, cudaPeekAtLastError());
  nccl4j_standin_reset();
  SAME(cudaErrorNotReady, cudaStreamQuery(stream));
  SAME(cudaErrorNotReady, cudaGetLastError());
  SAME(cudaSuccess, cudaGetLastError());
  atomic_store(&gate, true);
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamDestroy(stream));
}

int main(void) {
  small_copies();
  batches();
  full_queue();
  last_error_of_queries();
  printf("selftest_stream: ok\n");
  return 0;
}
