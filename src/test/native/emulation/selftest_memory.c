/* Tests of devices, contexts, memory and entry points; see README.md. */
#include "standin.h"

#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
#define OK(call) CHECK((call) == 0)

static void *entry(const char *name, unsigned int version) {
  void *function = NULL;
  enum cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status));
  CHECK((status == cudaDriverEntryPointSuccess) == (function != NULL));
  return function;
}

/* Runs `body` in a child process; returns what the child wrote to stderr and stores its status. */
static char *run_child(void (*body)(void), int *status) {
  static char text[4096];
  int pipes[2];
  OK(pipe(pipes));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
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

static void call_missing_function(void) {
  int (*missing)(int) = (int (*)(int))entry("cuNobodyEmulatesThis", 13000);
  missing(7);
}

static void entry_points(void) {
  CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
      (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))entry("cuGetProcAddress",
                                                                                                   12000);
  CHECK(get != NULL);
  void *function;
  CUdriverProcAddressQueryResult result;
  OK(get("cuGetProcAddress", &function, 12000, 0, &result));
  CHECK(function == (void *)get && result == CU_GET_PROC_ADDRESS_SUCCESS);
  OK(get("cuGetProcAddress", &function, 11000, 0, &result));
  CHECK(function == NULL && result == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  OK(get("someOtherFunction", &function, 13000, 0, &result));
  CHECK(function == NULL && result == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(entry("cuMissingOne", 13000) != entry("cuMissingTwo", 13000));
  CHECK(entry("cuMissingOne", 13000) == entry("cuMissingOne", 12000));
  int status;
  const char *text = run_child(call_missing_function, &status);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK(strcmp(text, "nccl4j emulation: cuNobodyEmulatesThis is not emulated\n") == 0);

  OK(nccl4j_standin_fail("cuGetProcAddress", CUDA_ERROR_UNKNOWN, 1));
  CHECK(get("cuGetProcAddress", &function, 12000, 0, NULL) == CUDA_ERROR_UNKNOWN);
  OK(get("cuGetProcAddress", &function, 12000, 0, NULL));
}

int main(void) {
  entry_points();
  printf("selftest_memory: ok\n");
  return 0;
}
