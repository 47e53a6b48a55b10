/*
 * Measures how long a cache line takes from one processor to another. Two threads, each bound to one of the first two processors
 * that this program may use, answer each other, each in a line that only it writes. Prints the median of the batches, in
 * nanoseconds one way, or "unmeasured" if there is one processor, on which a waiting thread would keep the other from answering.
 *
 *   cache_line_latency
 */
#define _GNU_SOURCE
#include "times.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* Twice the size of a cache line, since processors fetch lines in pairs. */
enum { APART = 128 };

/* Batches are short enough that most are not interrupted by another program. */
enum { BATCHES = 1001, ROUNDS = 100 };

typedef struct {
  _Alignas(APART) atomic_long round;
} line;

static line there, back;
static cpu_set_t allowed;

/* Returns the next allowed processor, or -1 if there is none. */
static int allowed_after(int processor) {
  do processor++;
  while (processor < CPU_SETSIZE && !CPU_ISSET(processor, &allowed));
  return processor < CPU_SETSIZE ? processor : -1;
}

static void stay_on(int processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  if (sched_setaffinity(0, sizeof only, &only)) die("cannot bind a thread to a processor");
}

static void write_line(line *mine, long round) {
  atomic_store_explicit(&mine->round, round, memory_order_release);
}

static void await_line(line *theirs, long round) {
  while (atomic_load_explicit(&theirs->round, memory_order_acquire) < round) continue;
}

static void *answer(void *processor) {
  stay_on(*(int *)processor);
  for (long round = 1; round <= (long)BATCHES * ROUNDS; round++) {
    await_line(&there, round);
    write_line(&back, round);
  }
  return NULL;
}

/* Returns the nanoseconds of one way. */
static double batch(long first) {
  double start = now();
  for (long round = first; round < first + ROUNDS; round++) {
    write_line(&there, round);
    await_line(&back, round);
  }
  return (now() - start) * 1e3 / ROUNDS / 2;
}

int main(void) {
  if (sched_getaffinity(0, sizeof allowed, &allowed)) die("cannot get the allowed processors");
  int first = allowed_after(-1), second = allowed_after(first);
  if (second < 0) {
    puts("unmeasured");
    return 0;
  }
  stay_on(first);
  pthread_t other;
  if (pthread_create(&other, NULL, answer, &second)) die("cannot create a thread");
  double taken[BATCHES];
  for (int i = 0; i < BATCHES; i++) taken[i] = batch(1 + (long)i * ROUNDS);
  pthread_join(other, NULL);
  printf("%.1f\n", median(taken, BATCHES));
  return 0;
}
