/* Fibers: flows of control of one thread, each with a stack, that wait for conditions. */
#ifndef NCCL4J_STANDIN_FIBER_H
#define NCCL4J_STANDIN_FIBER_H

#include "kernel.h"

struct fiber;
struct fibers; /* those of one kernel; one thread at a time uses them */

struct fibers *fibers_new(void);

/* Frees all fibers, also those that have not ended; what they hold on their stacks is abandoned. */
void fibers_free(struct fibers *fibers);

/* Adds a fiber that will run `run(argument)`. Also called from inside a fiber. */
struct fiber *fibers_add(struct fibers *fibers, void (*run)(struct fiber *self, void *argument), void *argument);

/* Runs all fibers until each waits or has ended. Their kernel fails when *failed is set, and ends early when the flag
 * is set by which NCCL aborts, if it has one. */
enum kernel_progress fibers_poll(struct fibers *fibers, const bool *failed, const uint32_t *abort_flag);

/* Waits until the condition is true; called by the fiber itself. The condition is also evaluated outside the fiber. */
void fiber_wait(struct fiber *self, bool (*condition)(void *state), void *state);

/* Runs no more: its kernel ends without it. */
_Noreturn void fiber_stop(struct fiber *self);

/* Waits until the other fiber has ended. */
void fiber_join(struct fiber *self, struct fiber *other);

#endif
