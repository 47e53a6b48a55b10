/*
 * The one function of the driver that nccl4j asks for: whether a device has a primary context. What it answers is known
 * to the stand-in's CUDA runtime, which is linked to this library so that it is loaded with it.
 */
#include <cuda.h>

int nccl4j_standin_context(int device);

__attribute__((visibility("default"))) CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags,
                                                                          int *active) {
  int context = nccl4j_standin_context(device);
  if (context < 0) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = context;
  return CUDA_SUCCESS;
}
