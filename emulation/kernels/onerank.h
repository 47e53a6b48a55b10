/* The kernel with which a communicator of one rank multiplies by the argument of a PreMulSum. */
#ifndef NCCL4J_STANDIN_ONERANK_H
#define NCCL4J_STANDIN_ONERANK_H

#include <stdbool.h>
#include <stddef.h>

/* Size of the kernel's parameters. */
#define ONE_RANK_BYTES 40

bool one_rank_is(const char *name);

/* Copies the parameters from the addresses of the launch. */
void one_rank_gather(void *const *parameters, void *buffer);

/* Carries out the kernel, which waits for nothing; false if the device may not access its buffers. */
bool one_rank_run(const char *name, const void *arguments, int device);

#endif
