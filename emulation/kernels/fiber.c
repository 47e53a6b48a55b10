/*
 * Fibers on ucontext. A fiber that waits is resumed only when its condition holds, since a switch of ucontext costs two
 * system calls. Every switch is reported to the address and thread sanitizers.
 */
#include "fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_BYTES (64 << 10)

struct fiber {
  ucontext_t context;
  char *stack; /* NULL after the end */
  void (*run)(struct fiber *self, void *argument);
  void *argument;
  bool (*condition)(void *state);
  void *state;
  bool ended;
  struct fibers *fibers;
  struct fiber *next;
#if defined(__SANITIZE_ADDRESS__)
  void *fake_stack;
#endif
#if defined(__SANITIZE_THREAD__)
  void *sanitizer;
#endif
};

struct fibers {
  ucontext_t context; /* of the thread that runs them */
  struct fiber *first, **last;
#if defined(__SANITIZE_ADDRESS__)
  void *fake_stack;
  const void *stack;
  size_t stack_bytes;
#endif
#if defined(__SANITIZE_THREAD__)
  void *sanitizer;
#endif
};

/* ---- stacks, each above a page without access: an overflow ends the process ---- */

static size_t guard_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static char *stack_new(void) {
  size_t guard = guard_bytes();
  char *memory = mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, guard, PROT_NONE) != 0) abort();
  return memory + guard;
}

static void stack_free(char *stack) {
  if (stack == NULL) return;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack, STACK_BYTES); /* a fiber that has not ended leaves its frames */
#endif
  munmap(stack - guard_bytes(), guard_bytes() + STACK_BYTES);
}

/* ---- switches, as reported to the sanitizers ---- */

static void before_entering(struct fibers *fibers, struct fiber *fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fibers->fake_stack, fiber->stack, STACK_BYTES);
#endif
#if defined(__SANITIZE_THREAD__)
  fibers->sanitizer = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber->sanitizer, 0);
#endif
  (void)fibers;
  (void)fiber;
}

static void after_entering(struct fiber *fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber->fake_stack, &fiber->fibers->stack, &fiber->fibers->stack_bytes);
#endif
  (void)fiber;
}

static void before_leaving(struct fiber *fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fiber->ended ? NULL : &fiber->fake_stack, fiber->fibers->stack,
                                 fiber->fibers->stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fiber->fibers->sanitizer, 0);
#endif
  (void)fiber;
}

static void after_leaving(struct fibers *fibers) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fibers->fake_stack, NULL, NULL);
#endif
  (void)fibers;
}

/* ---- fibers ---- */

struct fibers *fibers_new(void) {
  struct fibers *fibers = calloc(1, sizeof *fibers);
  fibers->last = &fibers->first;
  return fibers;
}

void fibers_free(struct fibers *fibers) {
  while (fibers->first != NULL) {
    struct fiber *fiber = fibers->first;
    fibers->first = fiber->next;
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber->sanitizer);
#endif
    stack_free(fiber->stack);
    free(fiber);
  }
  free(fibers);
}

/* makecontext passes integers only. */
static void enter(unsigned high, unsigned low) {
  struct fiber *fiber = (struct fiber *)((uintptr_t)high << 32 | low);
  after_entering(fiber);
  fiber->run(fiber, fiber->argument);
  fiber->ended = true;
  before_leaving(fiber);
  setcontext(&fiber->fibers->context);
}

struct fiber *fibers_add(struct fibers *fibers, void (*run)(struct fiber *self, void *argument), void *argument) {
  struct fiber *fiber = calloc(1, sizeof *fiber);
  fiber->stack = stack_new();
  fiber->run = run;
  fiber->argument = argument;
  fiber->fibers = fibers;
#if defined(__SANITIZE_THREAD__)
  fiber->sanitizer = __tsan_create_fiber(0);
#endif
  if (getcontext(&fiber->context) != 0) abort();
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = STACK_BYTES;
  uintptr_t address = (uintptr_t)fiber;
  makecontext(&fiber->context, (void (*)(void))(uintptr_t)enter, 2, (unsigned)(address >> 32), (unsigned)address);
  *fibers->last = fiber;
  fibers->last = &fiber->next;
  return fiber;
}

static void resume(struct fibers *fibers, struct fiber *fiber) {
  fiber->condition = NULL;
  before_entering(fibers, fiber);
  if (swapcontext(&fibers->context, &fiber->context) != 0) abort();
  after_leaving(fibers);
  if (fiber->ended) {
    stack_free(fiber->stack);
    fiber->stack = NULL;
  }
}

/* Returns whether any of them ran. */
static bool fibers_run(struct fibers *fibers) {
  bool ran = false, again = true;
  while (again) {
    again = false;
    for (struct fiber *fiber = fibers->first; fiber != NULL; fiber = fiber->next) {
      if (fiber->ended || (fiber->condition != NULL && !fiber->condition(fiber->state))) continue;
      resume(fibers, fiber);
      ran = again = true;
    }
  }
  return ran;
}

static bool all_ended(const struct fibers *fibers) {
  for (const struct fiber *fiber = fibers->first; fiber != NULL; fiber = fiber->next)
    if (!fiber->ended) return false;
  return true;
}

enum kernel_progress fibers_poll(struct fibers *fibers, const bool *failed, const uint32_t *abort_flag) {
  bool ran = fibers_run(fibers);
  if (*failed) return KERNEL_FAILED;
  bool aborted = abort_flag != NULL && __atomic_load_n(abort_flag, __ATOMIC_ACQUIRE) != 0;
  return aborted || all_ended(fibers) ? KERNEL_DONE : ran ? KERNEL_MOVED : KERNEL_WAITS;
}

void fiber_wait(struct fiber *self, bool (*condition)(void *state), void *state) {
  if (condition(state)) return;
  self->condition = condition;
  self->state = state;
  before_leaving(self);
  if (swapcontext(&self->context, &self->fibers->context) != 0) abort();
  after_entering(self);
}

static bool never(void *nothing) { return nothing != NULL; }

void fiber_stop(struct fiber *self) {
  fiber_wait(self, never, NULL);
  abort(); /* not reached */
}

static bool has_ended(void *fiber) { return ((struct fiber *)fiber)->ended; }

void fiber_join(struct fiber *self, struct fiber *other) { fiber_wait(self, has_ended, other); }
