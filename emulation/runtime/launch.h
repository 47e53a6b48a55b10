/* Kernel launches, for the runtime's and the driver's functions. */
#ifndef NCCL4J_STANDIN_LAUNCH_H
#define NCCL4J_STANDIN_LAUNCH_H

#include "../kernels/kernel.h"
#include "cudart/cudart.h"

/* The marks in `extra`, of CUDA's public interface (CU_LAUNCH_PARAM_...). */
#define LAUNCH_BUFFER_END ((void *)0x00)
#define LAUNCH_BUFFER_POINTER ((void *)0x01)
#define LAUNCH_BUFFER_SIZE ((void *)0x02)

struct kernel_launch {
  cudaFunction_t function;
  struct kernel_shape shape;
  cudaStream_t stream;
  void **parameters; /* one address per parameter; or */
  void **extra;      /* one buffer with all parameters */
  cudaEvent_t begun; /* recorded when the kernel has begun; may be NULL */
};

/* Takes cluster and event from the attributes; ends the process for one that is not emulated. */
void launch_attributes(struct kernel_launch *request, const cudaLaunchAttribute *attributes, unsigned int count);
cudaError_t launch_kernel(const struct kernel_launch *request);

#endif
