/* Waiting: completions, and the pauses of a worker that polls memory which other threads or processes write. */
#include "cudart.h"

#include <sched.h>
#include <stdlib.h>

struct completion *completion_new(void) {
  struct completion *c = calloc(1, sizeof *c);
  atomic_init(&c->references, 1);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->reached, NULL);
  return c;
}

void completion_hold(struct completion *c) { atomic_fetch_add(&c->references, 1); }

void completion_put(struct completion *c) {
  if (!c || atomic_fetch_sub(&c->references, 1) > 1) return;
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->reached);
  free(c);
}

void completion_signal(struct completion *c, cudaError_t error) {
  pthread_mutex_lock(&c->lock);
  c->done = true;
  c->error = error;
  clock_gettime(CLOCK_MONOTONIC, &c->time);
  pthread_cond_broadcast(&c->reached);
  pthread_mutex_unlock(&c->lock);
}

bool completion_reached(struct completion *c) {
  pthread_mutex_lock(&c->lock);
  bool reached = c->done && c->error == cudaSuccess;
  pthread_mutex_unlock(&c->lock);
  return reached;
}

cudaError_t completion_wait(struct completion *c) {
  pthread_mutex_lock(&c->lock);
  while (!c->done) pthread_cond_wait(&c->reached, &c->lock);
  cudaError_t error = c->error;
  pthread_mutex_unlock(&c->lock);
  return error;
}

/* ---- polling ---- */

#define POLLS_AT_ONCE 4
#define POLLS_WITH_YIELD 16
#define SHORTEST_PAUSE 20000 /* nanoseconds */
#define LONGEST_PAUSE 200000

void poll_pause(unsigned int *polls) {
  unsigned int n = (*polls)++;
  if (n < POLLS_AT_ONCE) return;
  if (n < POLLS_AT_ONCE + POLLS_WITH_YIELD) {
    sched_yield();
    return;
  }
  long pause = SHORTEST_PAUSE * (long)(n - POLLS_AT_ONCE - POLLS_WITH_YIELD + 1);
  if (pause > LONGEST_PAUSE) {
    pause = LONGEST_PAUSE;
    *polls = n; /* stays at the longest pause, without an overflow */
  }
  nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
}
