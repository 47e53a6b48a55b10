/* The checks of the self-tests. A failed one prints its place and ends the process. */
#ifndef NCCL4J_SELFTEST_CHECK_H
#define NCCL4J_SELFTEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a failed check prints too. */
#ifndef CHECK_DETAIL
#define CHECK_DETAIL ""
#endif

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: failed: %s %s\n", __FILE__, __LINE__, #condition, CHECK_DETAIL);                         \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define SAME(expected, actual)                                                                                         \
  do {                                                                                                                 \
    long long expected_ = (long long)(expected), actual_ = (long long)(actual);                                        \
    if (expected_ != actual_) {                                                                                        \
      fprintf(stderr, "%s:%d: %s is %lld, not %lld %s\n", __FILE__, __LINE__, #actual, actual_, expected_,             \
              CHECK_DETAIL);                                                                                           \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define OK(call) SAME(0, call)

/* Runs `body` in a child process; returns what the child wrote to stderr and stores its status. */
static inline char *run_child(void (*body)(void), int *status) {
  static char text[4096];
  int pipes[2];
  OK(pipe(pipes));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(pipes[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(pipes[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(pipes[0], text + length, sizeof text - 1 - length)) > 0;) length += (size_t)n;
  text[length] = 0;
  close(pipes[0]);
  CHECK(waitpid(child, status, 0) == child);
  return text;
}

#endif
