/*
 * Kernel launches: what a stream executes for a launch, and how tests add kernels of their own.
 *
 * A kernel is known by the name of its host stub. NCCL's collective kernels are carried out on the CPU through NCCL's
 * own connection buffers; every other kernel must have been registered with nccl4j_standin_kernel, or the process ends
 * with its name.
 */
#ifndef NCCL4J_STANDIN_KERNEL_H
#define NCCL4J_STANDIN_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernel_dimensions {
  unsigned x, y, z;
};

struct kernel_shape {
  struct kernel_dimensions grid, block, cluster; /* cluster: all 0 without the attribute */
  size_t shared; /* dynamic, in bytes */
};

enum kernel_progress {
  KERNEL_WAITS, /* every block waits for a peer or a host thread */
  KERNEL_MOVED, /* some block did something; poll again soon */
  KERNEL_DONE,
  KERNEL_FAILED /* the stream gets cudaErrorLaunchFailure */
};

struct kernel; /* one execution of one launch */

#pragma GCC visibility push(default)

/* Creates one execution of a launch. `arguments` is the parameter buffer, which is copied. Never NULL: an unknown
 * kernel ends the process with its name. A graph's kernel node creates one at every launch of the graph. */
struct kernel *nccl4j_standin_kernel_new(const char *name, const struct kernel_shape *shape, const void *arguments,
                                         size_t bytes, int device);

/* Runs until every block must wait; never blocks. One thread at a time per kernel. */
enum kernel_progress nccl4j_standin_kernel_poll(struct kernel *kernel);

/* Frees a kernel, also one that has not ended. */
void nccl4j_standin_kernel_free(struct kernel *kernel);

/* Builds the parameter buffer of a launch that passes one address per parameter (the `args` of cudaLaunchKernel and the
 * `kernelParams` of cuLaunchKernel). Returns its size in bytes, and allocates *buffer with malloc. */
size_t nccl4j_standin_kernel_gather(const char *name, void *const *parameters, void **buffer);

/* Adds a kernel for tests, or replaces one. `run` is called at every poll, with the launch's parameters, until it
 * returns true; *step is 0 at first, and the poll counts as progress if `run` changed it. Launched by addresses of
 * parameters, such a kernel has one parameter of eight bytes. */
void nccl4j_standin_kernel(const char *name, bool (*run)(const void *arguments, size_t bytes, int *step));

#pragma GCC visibility pop

/* Short names. */
#define kernel_new nccl4j_standin_kernel_new
#define kernel_poll nccl4j_standin_kernel_poll
#define kernel_free nccl4j_standin_kernel_free
#define kernel_gather nccl4j_standin_kernel_gather

#endif
