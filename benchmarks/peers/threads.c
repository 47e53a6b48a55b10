/*
 * All-reduce by threads that share memory: each sums its part of all inputs and stores it to all outputs. This is the time of
 * plain C for the passes over memory that the reference makes in process.
 *
 *   threads RANKS fused|tiles MODE... SIZE...
 */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_RANKS = 64, TILE = 1024, SPINS = 200, LINE = 16 };

typedef struct {
  _Alignas(64) atomic_int arrived;
  _Alignas(64) atomic_int passed;
} barrier;

typedef struct {
  _Alignas(64) const float *send;
  float *recv;
  double value;
} slot;

static int ranks, spins, fused;
static barrier gate;
static slot slots[MAX_RANKS];

/* If threads share a processor, a waiting thread yields, so that the others can arrive. */
static void await_all(void) {
  int before = atomic_load_explicit(&gate.passed, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&gate.arrived, 1, memory_order_acq_rel) == ranks - 1) {
    atomic_store_explicit(&gate.arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&gate.passed, before + 1, memory_order_release);
    return;
  }
  for (int tries = 0; atomic_load_explicit(&gate.passed, memory_order_acquire) == before; tries++) {
    if (tries < spins) {
      __builtin_ia32_pause();
    } else {
      sched_yield();
    }
  }
}

static void sum_two(size_t begin, size_t end) {
  const float *a = slots[0].send, *b = slots[1].send;
  float *restrict x = slots[0].recv, *restrict y = slots[1].recv;
  for (size_t i = begin; i < end; i++) {
    float sum = a[i] + b[i];
    x[i] = sum;
    y[i] = sum;
  }
}

static void sum_four(size_t begin, size_t end) {
  const float *a = slots[0].send, *b = slots[1].send, *c = slots[2].send, *d = slots[3].send;
  float *restrict x = slots[0].recv, *restrict y = slots[1].recv, *restrict z = slots[2].recv, *restrict w = slots[3].recv;
  for (size_t i = begin; i < end; i++) {
    float sum = a[i] + b[i] + c[i] + d[i];
    x[i] = sum;
    y[i] = sum;
    z[i] = sum;
    w[i] = sum;
  }
}

static void sum_tile(size_t begin, size_t count) {
  _Alignas(64) float tile[TILE];
  const float *a = slots[0].send + begin, *b = slots[1].send + begin;
  for (size_t i = 0; i < count; i++) tile[i] = a[i] + b[i];
  for (int rank = 2; rank < ranks; rank++) {
    const float *more = slots[rank].send + begin;
    for (size_t i = 0; i < count; i++) tile[i] += more[i];
  }
  for (int rank = 0; rank < ranks; rank++) memcpy(slots[rank].recv + begin, tile, count * sizeof *tile);
}

static void sum_part(size_t begin, size_t end) {
  if (fused && ranks == 2) {
    sum_two(begin, end);
  } else if (fused && ranks == 4) {
    sum_four(begin, end);
  } else {
    for (size_t at = begin; at < end; at += TILE) sum_tile(at, end - at < TILE ? end - at : TILE);
  }
}

static void all_reduce(void *self, float *send, float *recv, size_t count) {
  slot *mine = (slot *)self;
  mine->send = send;
  mine->recv = recv;
  await_all();
  size_t rank = (size_t)(mine - slots);
  size_t part = (count / (size_t)ranks + LINE - 1) / LINE * LINE;
  size_t begin = rank * part < count ? rank * part : count;
  size_t end = begin + part < count && rank != (size_t)ranks - 1 ? begin + part : count;
  sum_part(begin, end);
  await_all();
}

static double max_over_ranks(void *self, double value) {
  ((slot *)self)->value = value;
  await_all();
  double max = value;
  for (int rank = 0; rank < ranks; rank++) max = slots[rank].value > max ? slots[rank].value : max;
  await_all();
  return max;
}

static int sizes;
static char **arguments;

static void *run(void *self) {
  measured peer = {self, (int)((slot *)self - slots), ranks, 0, all_reduce, max_over_ranks};
  measure(&peer, sizes, arguments);
  return NULL;
}

int main(int count, char **given) {
  ranks = count > 3 ? atoi(given[1]) : 0;
  if (ranks < 2 || ranks > MAX_RANKS) die("threads RANKS fused|tiles MODE... SIZE...");
  fused = strcmp(given[2], "fused") == 0;
  spins = ranks > sysconf(_SC_NPROCESSORS_ONLN) ? 0 : SPINS;
  sizes = count - 3;
  arguments = given + 3;
  pthread_t threads[MAX_RANKS];
  for (int rank = 0; rank < ranks; rank++) {
    if (pthread_create(&threads[rank], NULL, run, &slots[rank])) die("cannot create a thread");
  }
  for (int rank = 0; rank < ranks; rank++) pthread_join(threads[rank], NULL);
  return 0;
}
