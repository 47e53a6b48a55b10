/*
 * Version, error texts (those of the real library), the last error (one buffer for the process, never cleared), and the
 * log: warnings only, in NCCL's format, if NCCL_DEBUG and NCCL_DEBUG_FILE are set when the first one is written.
 */
#include "clique.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

NCCL_FUNCTION(ncclGetVersion)
NCCL_FUNCTION(ncclGetErrorString)
NCCL_FUNCTION(ncclGetLastError)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
NCCL_FUNCTION(ncclResetDebugInit)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[1024];

static pthread_once_t log_opened = PTHREAD_ONCE_INIT;
static char host[256];
static FILE *log_file;

static void open_log(void) {
  const char *name = getenv("NCCL_DEBUG_FILE");
  gethostname(host, sizeof host - 1);
  if (!getenv("NCCL_DEBUG") || !name) return;
  char path[4096];
  size_t at = 0;
  for (const char *c = name; *c && at < sizeof path - sizeof host; c++) {
    if (*c == '%' && c[1] == 'h') at += (size_t)sprintf(path + at, "%s", host), c++;
    else if (*c == '%' && c[1] == 'p') at += (size_t)sprintf(path + at, "%d", getpid()), c++;
    else path[at++] = *c, c += *c == '%' && c[1] == '%';
  }
  path[at] = 0;
  log_file = fopen(path, "w");
  if (log_file) setlinebuf(log_file);
}

static void log_warning(const char *text) {
  pthread_once(&log_opened, open_log);
  if (!log_file) return;
  char now[32];
  time_t seconds = time(NULL);
  struct tm local;
  strftime(now, sizeof now, "[%F %T] ", localtime_r(&seconds, &local));
  fprintf(log_file, "\n%s%s:%d:%d [0] errors.c:1 (warn) NCCL WARN %s\n", now, host, getpid(), gettid(), text);
}

void warn(const char *format, ...) {
  char text[sizeof last_error];
  int at = snprintf(text, sizeof text, "nccl4j stand-in: ");
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + at, sizeof text - (size_t)at, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  memcpy(last_error, text, sizeof last_error);
  log_warning(text);
  pthread_mutex_unlock(&lock);
}

ncclResult_t forced_failure(const char *function, int result) {
  warn("%s fails on demand with %d", function, result);
  return (ncclResult_t)result;
}

ncclResult_t cuda_failure(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  warn("Cuda failure %d '%s'", error, nccl4j_standin_error_text(error));
  return ncclUnhandledCudaError;
}

ncclResult_t require_cuda(void) {
  if (nccl4j_standin_device_count() == 0) return cuda_failure(cudaErrorInsufficientDriver);
  return cuda_failure(nccl4j_standin_unsafe());
}

ncclResult_t argument_present(const void *argument, const char *function, const char *name) {
  if (argument) return ncclSuccess;
  warn("%s : %s argument is NULL", function, name);
  return ncclInvalidArgument;
}

ncclResult_t ncclGetVersion(int *version) {
  ENTER(ncclGetVersion);
  ncclResult_t result = argument_present(version, "GetVersion", "version");
  if (result == ncclSuccess) *version = STANDIN_RELEASE;
  return result;
}

const char *ncclGetErrorString(ncclResult_t result) {
  int forced;
  nccl4j_standin_enter(&site_ncclGetErrorString, &forced);
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case ncclTimeout: return "timeout";
    default: return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  int forced;
  nccl4j_standin_enter(&site_ncclGetLastError, &forced);
  return last_error;
}

void ncclResetDebugInit(void) {
  int forced;
  nccl4j_standin_enter(&site_ncclResetDebugInit, &forced);
}
