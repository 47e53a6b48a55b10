/* One launch of a kernel of NCCL's: its blocks, and what each of them has to do. Internal to this directory. */
#ifndef NCCL4J_STANDIN_KERNELS_LAUNCH_H
#define NCCL4J_STANDIN_KERNELS_LAUNCH_H

#include "fiber.h"
#include "function.h"
#include "kernel.h"
#include "release.h"

#include <stdalign.h>

#define SCRATCH_BYTES 32768

enum work_type { WORK_P2P, WORK_COLLECTIVE, WORK_REGISTERED, WORK_BROADCAST };

/* What a block does together: works of one function. */
struct batch {
  #define SCRATCH_BYTES 32768

enum work_type type;
  struct function function;
  char *works; /* copies, one after the other */
  size_t work_bytes, capacity;
  int count;
  int next; /* index of the block's next batch, -1 for none */
};

struct block {
  struct launch *launch;
  int index, channel_number;
  char *channel; /* NCCL's structure of the channel */
  struct batch batch;
};

struct launch {
  const struct release *release;
  const char *name;
  const char *arguments;
  size_t bytes;
  char *communicator; /* NCCL's structure */
  int rank, ranks;
  int device;
  struct fibers *fibers;
  bool failed;
  /* Only for the time in which a fiber does not wait. */
  alignas(16) char values[SCRATCH_BYTES];
  alignas(16) char others[SCRATCH_BYTES];
  int block_count;
  struct block blocks[];
};

/* Ends the process, since this kernel asks for something that is not emulated. */
_Noreturn void launch_refuse(const struct launch *launch, const char *reason);

/* Creates a launch; the name and the arguments must outlive it. */
struct launch *launch_new(const char *name, const struct kernel_shape *shape, const void *arguments, size_t bytes,
                          int device);
enum kernel_progress launch_poll(struct launch *launch);
void launch_free(struct launch *launch);

/* Loads a batch of the block, with the batches that extend it. */
void batch_load(struct block *block, int index);
/* Returns a work of the batch: a structure of NCCL's. */
const void *batch_work(const struct batch *batch, int index);

/* The part of a collective that one channel does, in elements. */
struct part {
  ptrdiff_t count /* of all channels */, offset, length, chunk;
};
struct part part_of(const struct block *block, const void *work);

/* The part of a send or receive that one channel does, in bytes; false if it does none. */
bool p2p_part(const struct block *block, const void *work, bool send, size_t *begin, size_t *end);
size_t p2p_chunk(const struct block *block, const void *work, bool send);

/* Runs all works of the block's batch. */
void collectives_run(struct block *block, struct fiber *self);
void p2p_run(struct block *block, struct fiber *self);
void broadcasts_run(struct block *block, struct fiber *self);
/* Runs a work with the algorithm PAT. */
void pat_run(struct block *block, struct fiber *self, const void *work);
/* Returns the operator's argument of a collective. */
uint64_t argument_of(const struct block *block, const void *work);

/* Whether plans are written, and whether nothing else is to be done. */
bool plan_wanted(void);
bool plan_only(void);
/* Writes a line for each work of the block's batch. */
void plan_write(const struct block *block);
/* Writes a line for a work of a kernel for symmetric memory. */
void plan_write_symmetric(const char *kernel, int rank, int ranks, int blocks, size_t count);

#endif
