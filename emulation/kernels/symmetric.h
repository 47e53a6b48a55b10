/* Kernels for symmetric memory: windows that all ranks of a host have mapped. */
#ifndef NCCL4J_STANDIN_SYMMETRIC_H
#define NCCL4J_STANDIN_SYMMETRIC_H

#include "kernel.h"

struct symmetric; /* one launch */

bool symmetric_is(const char *name);

/* Creates a launch, or ends the process if the kernel is not emulated. The name and the arguments must outlive it. */
struct symmetric *symmetric_new(const char *name, const struct kernel_shape *shape, const void *arguments, size_t bytes,
                                int device);
enum kernel_progress symmetric_poll(struct symmetric *launch);
void symmetric_free(struct symmetric *launch);

#endif
