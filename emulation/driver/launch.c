/* Kernel launches of the driver API. */
#include "../runtime/launch.h"
#include "driver.h"

#include <assert.h>

/* The runtime's declarations of launch attributes are the driver's with other names. */
static_assert(sizeof(CUlaunchAttribute) == sizeof(cudaLaunchAttribute), "size of a launch attribute");
static_assert(offsetof(CUlaunchAttribute, value) == offsetof(cudaLaunchAttribute, val), "value of a launch attribute");
static_assert((int)CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT == (int)cudaLaunchAttributeLaunchCompletionEvent,
              "number of a launch attribute");

DRIVER_ENTRY(cuLaunchKernel, 4000)
CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
  DRIVER_ENTER(cuLaunchKernel);
  struct kernel_launch request = {
      .function = f,
      .shape = {.grid = {gridDimX, gridDimY, gridDimZ},
                .block = {blockDimX, blockDimY, blockDimZ},
                .shared = sharedMemBytes},
      .stream = hStream,
      .parameters = kernelParams,
      .extra = extra,
  };
  return driver_result(launch_kernel(&request));
}

DRIVER_ENTRY(cuLaunchKernelEx, 11060)
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  DRIVER_ENTER(cuLaunchKernelEx);
  if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  struct kernel_launch request = {
      .function = f,
      .shape = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                .shared = config->sharedMemBytes},
      .stream = config->hStream,
      .parameters = kernelParams,
      .extra = extra,
  };
  launch_attributes(&request, (const cudaLaunchAttribute *)config->attrs, config->numAttrs);
  return driver_result(launch_kernel(&request));
}
