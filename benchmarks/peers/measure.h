/*
 * How every peer of scripts/bench reference measures its all-reduce (float32, sum); ReferenceRanks.java does the same.
 *
 * The arguments are modes and sizes. A size is BYTES:WARM_UPS:BATCHES:OPERATIONS. A batch is OPERATIONS consecutive
 * operations; its time is that of the slowest rank, beginning after a barrier of all ranks. The program checks the result
 * of one operation and then prints the median of the batches, in microseconds per operation:
 *
 *   BYTES MODE MICROSECONDS
 *
 * A program with a wrong result exits with status WRONG_RESULT.
 *
 * untouched: the inputs do not change, as in nccl-tests. rewritten: each rank copies its input before each operation,
 * within the batch; the time of the copies alone, measured in batches in between, is subtracted.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include "times.h"

#include <string.h>

typedef struct {
  void *self;
  int rank, ranks;
  int in_place; /* sums into the buffer that it reads */
  void (*all_reduce)(void *self, float *send, float *recv, size_t count);
  double (*max_over_ranks)(void *self, double value); /* waits for all ranks and returns the maximum of their values */
} measured;

typedef struct {
  size_t bytes;
  int warm_ups, batches, operations;
} sizing;

typedef struct {
  float *source, *send, *recv;
} memory;

enum { MAX_BATCHES = 1000, ALIGNMENT = 64, PERIOD = 1021, WRONG_RESULT = 3 };

static float *allocate(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, ALIGNMENT, bytes)) die("out of memory");
  return (float *)memory;
}

/* Checks one result. The inputs are small integers, whose sum is exact in any order. */
static void check(const measured *peer, memory at, size_t count) {
  memcpy(at.send, at.source, count * sizeof *at.send);
  if (!peer->in_place) {
    for (size_t i = 0; i < count; i++) at.recv[i] = -1;
  }
  peer->max_over_ranks(peer->self, 0);
  peer->all_reduce(peer->self, at.send, at.recv, count);
  for (size_t i = 0; i < count; i++) {
    float sum = (float)(peer->ranks * (peer->ranks + 1) / 2) * (float)(i % PERIOD);
    if (at.recv[i] != sum) {
      fprintf(stderr, "rank %d has %f at %zu of %zu; the sum is %f\n", peer->rank, at.recv[i], i, count, sum);
      exit(WRONG_RESULT);
    }
  }
}

static double batch(const measured *peer, sizing size, memory at, int copies, int reduces) {
  size_t count = size.bytes / sizeof(float);
  peer->max_over_ranks(peer->self, 0);
  double start = now();
  for (int i = 0; i < size.operations; i++) {
    if (copies) memcpy(at.send, at.source, size.bytes);
    if (reduces) peer->all_reduce(peer->self, at.send, at.recv, count);
  }
  return peer->max_over_ranks(peer->self, now() - start) / size.operations;
}

static void measure_size(const measured *peer, sizing size, memory at, const char *mode) {
  size_t count = size.bytes / sizeof(float);
  int rewrites = strcmp(mode, "rewritten") == 0;
  double taken[MAX_BATCHES], copying[MAX_BATCHES];
  check(peer, at, count);
  for (int i = 0; i < size.warm_ups; i++) peer->all_reduce(peer->self, at.send, at.recv, count);
  for (int i = 0; i < size.batches; i++) {
    taken[i] = batch(peer, size, at, rewrites, 1);
    copying[i] = rewrites ? batch(peer, size, at, 1, 0) : 0;
  }
  double microseconds = median(taken, size.batches) - median(copying, size.batches);
  if (peer->rank == 0) {
    printf("%zu %s %.4f\n", size.bytes, mode, microseconds);
    fflush(stdout);
  }
}

/* Returns 0 if the argument is a mode, not a size. */
static int parse(const char *argument, sizing *size) {
  int read = sscanf(argument, "%zu:%d:%d:%d", &size->bytes, &size->warm_ups, &size->batches, &size->operations);
  if (read == 0) return 0;
  if (read != 4 || size->bytes % sizeof(float) || size->batches < 1 || size->batches > MAX_BATCHES || size->operations < 1)
    die("a size is BYTES:WARM_UPS:BATCHES:OPERATIONS");
  return 1;
}

/* Measures every size in every mode. */
static void measure(const measured *peer, int count, char **arguments) {
  size_t max_bytes = 0;
  sizing size;
  for (int i = 0; i < count; i++) {
    if (parse(arguments[i], &size) && size.bytes > max_bytes) max_bytes = size.bytes;
  }
  memory at = {allocate(max_bytes), NULL, allocate(max_bytes)};
  at.send = peer->in_place ? at.recv : allocate(max_bytes);
  for (size_t i = 0; i < max_bytes / sizeof(float); i++) at.source[i] = (float)(peer->rank + 1) * (float)(i % PERIOD);
  for (int i = 0; i < count; i++) {
    if (!parse(arguments[i], &size)) continue;
    for (int mode = 0; mode < count; mode++) {
      sizing ignored;
      if (!parse(arguments[mode], &ignored)) measure_size(peer, size, at, arguments[mode]);
    }
  }
  peer->max_over_ranks(peer->self, 0);
  free(at.source);
  free(at.recv);
  if (!peer->in_place) free(at.send);
}

#endif
