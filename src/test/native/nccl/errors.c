/* Version, error texts (those of the real library), and the last error: one buffer for the process, never cleared. */
#include "clique.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

NCCL_FUNCTION(ncclGetVersion)
NCCL_FUNCTION(ncclGetErrorString)
NCCL_FUNCTION(ncclGetLastError)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
NCCL_FUNCTION(ncclResetDebugInit)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[1024];

void warn(const char *format, ...) {
  char text[sizeof last_error];
  int at = snprintf(text, sizeof text, "nccl4j stand-in: ");
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + at, sizeof text - (size_t)at, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  memcpy(last_error, text, sizeof last_error);
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
