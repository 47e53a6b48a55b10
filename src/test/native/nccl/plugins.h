/* What the stand-in's NCCL calls of plugins. A handle is NULL if the event is not profiled. */
#ifndef NCCL4J_STANDIN_PLUGINS_H
#define NCCL4J_STANDIN_PLUGINS_H

#include "clique.h"

/* Loads the environment plugin. Every function that may be a program's first one calls it, or variable. */
void environment_open(void);
void plugins_open(ncclComm_t comm);
void plugins_close(ncclComm_t comm);

/* The call of a function, until profile_stop. */
void *profile_call(ncclComm_t comm, const struct request *request, cudaStream_t stream, bool captured);
/* The launch of an operation, for which the tuner is asked, until profile_stop. */
void *profile_launch(ncclComm_t comm, struct request *request, int grouped);
void profile_stop(ncclComm_t comm, void *handle);
/* The kernel of a launched operation, on each of its channels. */
#define MAX_CHANNELS 64
void profile_kernel(ncclComm_t comm, const struct request *request, void *handles[MAX_CHANNELS]);
void profile_kernel_stop(ncclComm_t comm, void *handles[MAX_CHANNELS]);

#endif
