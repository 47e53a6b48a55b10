/* The checks of the self-tests. A failed one prints its place and ends the process. */
#ifndef NCCL4J_SELFTEST_CHECK_H
#define NCCL4J_SELFTEST_CHECK_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
/* Waits for a state that another thread brings about. */
#define UNTIL(condition)                                                                                               \
  do {                                                                                                                 \
    for (int polls_ = 0; polls_ < 60000 && !(condition); polls_++) usleep(1000);                                       \
    CHECK(condition);                                                                                                  \
  } while (0)

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

/* Whether the process ends with this message. */
static inline bool refuses(void (*body)(void), const char *message) {
  int status;
  const char *text = run_child(body, &status);
  bool same = strcmp(text, message) == 0;
  if (!same) fprintf(stderr, "the message is: %s\n", text);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && same;
}

/* Runs this program again, with arguments that end with NULL; under valgrind /proc/self/exe is another one. */
static inline _Noreturn void run_again(char *const arguments[]) {
  execv(program_invocation_name, arguments);
  _exit(127);
}

static const char *checked_variable, *checked_value;

static inline void run_with_variable(void) {
  setenv(checked_variable, checked_value, 1);
  run_again((char *[]){program_invocation_name, "again", NULL});
}

/* Whether this program, started again with an argument and the variable, is ended for that by this rule. */
static inline bool refuses_variable(const char *name, const char *value, const char *rule) {
  char message[256];
  checked_variable = name;
  checked_value = value;
  snprintf(message, sizeof message, "nccl4j stand-in: %s='%s': it must be %s\n", name, value, rule);
  return refuses(run_with_variable, message);
}

#endif
