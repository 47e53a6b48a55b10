/* What jextract reads to generate io.nccl4j.bindings.nccl: NVIDIA's own headers, and nothing of ours. */

/* nccl.h 2.30 declares ncclResetDebugInit only where this is set; NCCL's own build sets it, its installed header does not. */
#define NCCL_OS_LINUX 1
#include <nccl.h>
/* What the host may ask about the device side: properties, and addresses of windows. */
#include <nccl_device/core.h>
