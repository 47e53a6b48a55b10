/* The clock and the median of the C programs. */
#ifndef TIMES_H
#define TIMES_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void die(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* Returns the time in microseconds. */
static inline double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *numbers, int count) {
  qsort(numbers, (size_t)count, sizeof *numbers, ascending);
  return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

#endif
