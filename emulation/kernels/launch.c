/*
 * The launch of a kernel of NCCL's. Each block serves one channel and executes that channel's batches one after the
 * other; it is a fiber, so that blocks that wait for each other, or for those of other ranks, all make progress.
 */
#include "launch.h"

#include "cudart/cudart.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void launch_refuse(const struct launch *launch, const char *reason) {
  not_emulated("the kernel %s (%s)", launch->name, reason);
}

struct launch *launch_new(const char *name, const struct kernel_shape *shape, const void *arguments, size_t bytes,
                          int device) {
  struct launch *launch = calloc(1, sizeof *launch + shape->grid.x * sizeof *launch->blocks);
  launch->name = name;
  launch->arguments = arguments;
  launch->bytes = bytes;
  launch->device = device;
  launch->block_count = (int)shape->grid.x;
  return launch;
}

void launch_free(struct launch *launch) {
  if (launch->fibers != NULL) fibers_free(launch->fibers);
  for (int i = 0; i < launch->block_count; i++) free(launch->blocks[i].batch.works);
  free(launch);
}

/* ---- the profiler's counters, which NCCL's host code waits for ---- */

static void count_works(const struct block *block, bool completed) {
  const struct launch *launch = block->launch;
  const struct release *r = launch->release;
  uint64_t *done = address_of(block->channel, r->channel.works_done), next = *done + 1;
  char *counters = get_pointer(launch->communicator, completed ? r->communicator.completed : r->communicator.started);
  for (int i = 0; i < block->batch.count; i++, next++) {
    bool p2p = block->batch.type == WORK_P2P;
    struct field profiled = p2p ? r->p2p.profiled : r->collective.profiled;
    if (block->batch.type == WORK_BROADCAST || !get_int(batch_work(&block->batch, i), profiled)) continue;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t *event = (uint64_t *)(counters + (size_t)block->channel_number * r->profiler_bytes);
    event += next % r->profiler_events * 2;
    __atomic_store_n(event + 1, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, __ATOMIC_RELAXED);
    __atomic_store_n(event, next, __ATOMIC_RELEASE);
  }
  if (completed) *done += (uint64_t)block->batch.count;
}

/* ---- blocks ---- */

static void run_block(struct fiber *self, void *argument) {
  struct block *block = argument;
  for (int index = block->index; index >= 0; index = block->batch.next) {
    batch_load(block, index);
    count_works(block, false);
    switch (block->batch.type) {
      case WORK_P2P: p2p_run(block, self); break;
      case WORK_BROADCAST: broadcasts_run(block, self); break;
      default: collectives_run(block, self); break;
    }
    count_works(block, true);
  }
}

/* Ends the process if a batch of the block is not emulated. Writes its plan, if that is wanted. */
static void check_block(struct block *block) {
  const struct launch *launch = block->launch;
  for (int index = block->index; index >= 0; index = block->batch.next) {
    batch_load(block, index);
    const struct function *function = &block->batch.function;
    enum algorithm algorithm = function->algorithm;
    bool emulated = algorithm == RING || algorithm == TREE || algorithm == PAT;
    enum operation operation = function->operation;
    bool matches = (block->batch.type == WORK_P2P) == (operation == SEND_RECV) &&
                   (block->batch.type == WORK_BROADCAST) == (operation == ALL_GATHER_V);
    if (plan_wanted()) plan_write(block);
    if (plan_only()) continue;
    if (!emulated) launch_refuse(launch, algorithm_name(algorithm));
    if (!matches) launch_refuse(launch, "its works are not those of its function");
    for (int i = 0; i < block->batch.count && block->batch.type <= WORK_REGISTERED && operation != SEND_RECV; i++)
      if (get_int(batch_work(&block->batch, i), launch->release->collective.network_registered))
        launch_refuse(launch, "a network uses the user's buffers");
  }
}

/* Checks the launch against the table of the release. */
static void check_structures(const struct launch *launch) {
  const struct release *r = launch->release;
  if (launch->bytes < r->arguments_bytes + (size_t)launch->block_count * r->batch_bytes)
    launch_refuse(launch, "its arguments are shorter than those of the known release");
  uint64_t channels = get(launch->arguments, r->arguments.channels);
  if (__builtin_popcountll(channels) != launch->block_count)
    launch_refuse(launch, "its channels are not as many as its blocks");
  const char *communicator = get_pointer(launch->arguments, r->arguments.communicator);
  if (get_pointer(communicator, r->communicator.channels) != communicator + r->channels_offset)
    launch_refuse(launch, "its communicator is not laid out as in the known release");
  int rank = get_int(communicator, r->communicator.rank), ranks = get_int(communicator, r->communicator.ranks);
  if (rank < 0 || rank >= ranks) launch_refuse(launch, "its rank is not one of the communicator");
}

static void start(struct launch *launch) {
  const struct release *r = launch->release = release_find();
  check_structures(launch);
  launch->communicator = get_pointer(launch->arguments, r->arguments.communicator);
  launch->rank = get_int(launch->communicator, r->communicator.rank);
  launch->ranks = get_int(launch->communicator, r->communicator.ranks);
  launch->fibers = fibers_new();
  uint64_t channels = get(launch->arguments, r->arguments.channels);
  for (int i = 0; i < launch->block_count; i++, channels &= channels - 1) {
    struct block *block = &launch->blocks[i];
    int number = __builtin_ctzll(channels);
    *block = (struct block){
        .launch = launch,
        .index = i,
        .channel_number = number,
        .channel = launch->communicator + r->channels_offset + (size_t)number * r->channel_bytes,
    };
    check_block(block);
    if (!plan_only()) fibers_add(launch->fibers, run_block, block);
  }
}

enum kernel_progress launch_poll(struct launch *launch) {
  if (launch->release == NULL) start(launch);
  return fibers_poll(launch->fibers, &launch->failed,
                     get_pointer(launch->communicator, launch->release->communicator.abort));
}
