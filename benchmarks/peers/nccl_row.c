/*
 * Measures a row of an all-reduce (float32, sum) of one rank as nccl-tests does: runs one operation and waits for it, then
 * times a number of consecutive operations until the stream has completed them. It waits in a loop of cudaStreamQuery,
 * ncclCommGetAsyncError and sched_yield. Prints the microseconds per operation, out of place and in place, for each cycle.
 *
 *   nccl_row BYTES ITERATIONS CYCLES
 */
#include "times.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sched.h>

/* The largest row of nccl-tests by default. The operations of a smaller row use successive parts of the buffers. */
enum { MAX_BYTES = 32 << 20 };

static ncclComm_t comm;
static cudaStream_t stream;
static char *send_buffer, *receive_buffer;

static void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) die(cudaGetErrorString(error));
}

static void check_nccl(ncclResult_t result) {
  if (result != ncclSuccess) die(ncclGetErrorString(result));
}

static void enqueue(size_t bytes, int in_place, size_t iteration) {
  size_t shift = bytes * (iteration % (MAX_BYTES / bytes));
  char *receive = receive_buffer + shift, *send = in_place ? receive : send_buffer + shift;
  check_nccl(ncclAllReduce(send, receive, bytes / sizeof(float), ncclFloat, ncclSum, comm, stream));
}

static void complete(void) {
  for (;;) {
    cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state);
    ncclResult_t failure;
    check_nccl(ncclCommGetAsyncError(comm, &failure));
    check_nccl(failure);
    sched_yield();
  }
}

static double row(size_t bytes, int in_place, int iterations) {
  enqueue(bytes, in_place, 0);
  complete();
  double start = now();
  for (int i = 0; i < iterations; i++) enqueue(bytes, in_place, (size_t)i);
  complete();
  return (now() - start) / iterations;
}

int main(int count, char **given) {
  if (count != 4) die("usage: nccl_row BYTES ITERATIONS CYCLES");
  size_t bytes = strtoul(given[1], NULL, 10);
  int iterations = atoi(given[2]), cycles = atoi(given[3]);
  if (bytes < sizeof(float) || bytes > MAX_BYTES || iterations < 1) die("BYTES is 4 to 33554432, ITERATIONS 1 or more");
  ncclUniqueId id;
  check_cuda(cudaSetDevice(0));
  check_nccl(ncclGetUniqueId(&id));
  check_nccl(ncclCommInitRank(&comm, 1, id, 0));
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_nccl(ncclMemAlloc((void **)&send_buffer, MAX_BYTES));
  check_nccl(ncclMemAlloc((void **)&receive_buffer, MAX_BYTES));
  row(bytes, 0, 1);
  for (int cycle = 0; cycle < cycles; cycle++) {
    double out_of_place = row(bytes, 0, iterations);
    printf("%.3f %.3f\n", out_of_place, row(bytes, 1, iterations));
  }
  check_nccl(ncclMemFree(send_buffer));
  check_nccl(ncclMemFree(receive_buffer));
  check_cuda(cudaStreamDestroy(stream));
  check_nccl(ncclCommDestroy(comm));
  return 0;
}
