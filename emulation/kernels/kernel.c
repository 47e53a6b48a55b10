/* Kernels by name: NCCL's, and those that tests have registered. */
#include "kernel.h"

#include "cudart/cudart.h"
#include "launch.h"
#include "onerank.h"
#include "symmetric.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETER_BYTES 8 /* of a registered kernel that is launched by addresses of parameters */

struct registered {
  char *name;
  bool (*run)(const void *arguments, size_t bytes, int *step);
  struct registered *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered *all_registered;

/* A kernel is a registered one with `run`, one of NCCL's with a launch of one or the other kind, or that of a single
 * rank. */
struct kernel {
  struct launch *launch;
  struct symmetric *symmetric;
  bool (*run)(const void *arguments, size_t bytes, int *step);
  int step, device;
  const char *name;
  size_t bytes;
  max_align_t arguments[];
};

static struct registered *find_locked(const char *name) {
  struct registered *found = all_registered;
  while (found != NULL && strcmp(found->name, name) != 0) found = found->next;
  return found;
}

static struct registered *find(const char *name) {
  pthread_mutex_lock(&lock);
  struct registered *found = find_locked(name);
  pthread_mutex_unlock(&lock);
  return found;
}

void nccl4j_standin_kernel(const char *name, bool (*run)(const void *arguments, size_t bytes, int *step)) {
  pthread_mutex_lock(&lock);
  struct registered *entry = find_locked(name);
  if (entry == NULL) {
    entry = calloc(1, sizeof *entry);
    entry->name = strdup(name);
    entry->next = all_registered;
    all_registered = entry;
  }
  entry->run = run;
  pthread_mutex_unlock(&lock);
}

static _Noreturn void refuse(const char *name) { not_emulated("the kernel %s", name); }

/* The name of a C++ function, which contains the one in the source. */
static bool is_collective(const char *name) { return strstr(name, "ncclDevKernel_") != NULL; }

struct kernel *kernel_new(const char *name, const struct kernel_shape *shape, const void *arguments, size_t bytes,
                          int device) {
  struct registered *entry = find(name);
  if (entry == NULL && !is_collective(name) && !symmetric_is(name) && !one_rank_is(name)) refuse(name);
  struct kernel *kernel = calloc(1, sizeof *kernel + bytes + strlen(name) + 1);
  kernel->bytes = bytes;
  kernel->device = device;
  if (bytes > 0) memcpy(kernel->arguments, arguments, bytes);
  kernel->name = strcpy((char *)kernel->arguments + bytes, name);
  if (entry != NULL) kernel->run = entry->run;
  else if (is_collective(name)) kernel->launch = launch_new(kernel->name, shape, kernel->arguments, bytes, device);
  else if (symmetric_is(name)) kernel->symmetric = symmetric_new(kernel->name, shape, kernel->arguments, bytes, device);
  return kernel;
}

enum kernel_progress kernel_poll(struct kernel *kernel) {
  if (kernel->launch != NULL) return launch_poll(kernel->launch);
  if (kernel->symmetric != NULL) return symmetric_poll(kernel->symmetric);
  if (kernel->run == NULL)
    return one_rank_run(kernel->name, kernel->arguments, kernel->device) ? KERNEL_DONE : KERNEL_FAILED;
  int before = kernel->step;
  if (kernel->run(kernel->arguments, kernel->bytes, &kernel->step)) return KERNEL_DONE;
  return kernel->step == before ? KERNEL_WAITS : KERNEL_MOVED;
}

void kernel_free(struct kernel *kernel) {
  if (kernel->launch != NULL) launch_free(kernel->launch);
  if (kernel->symmetric != NULL) symmetric_free(kernel->symmetric);
  free(kernel);
}

size_t kernel_gather(const char *name, void *const *parameters, void **buffer) {
  bool one_rank = one_rank_is(name);
  if (find(name) == NULL && !one_rank) refuse(name);
  size_t bytes = one_rank ? ONE_RANK_BYTES : PARAMETER_BYTES;
  *buffer = malloc(bytes);
  if (one_rank) one_rank_gather(parameters, *buffer);
  else memcpy(*buffer, parameters[0], bytes);
  return bytes;
}
