/*
 * The one driver function that nccl4j calls: whether a device has a primary context. The state is kept by the
 * stand-in's CUDA runtime, which links to this library so that both are loaded together.
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
