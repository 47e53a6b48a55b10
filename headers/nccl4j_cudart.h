/* What jextract reads to generate io.nccl4j.bindings.cudart: NVIDIA's own header, and nothing of ours. */

#include <cuda_runtime_api.h>
