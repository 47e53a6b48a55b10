/*
 * Sharing memory of cudaMalloc with other processes of the same user.
 *
 * A handle names the descriptor of the memory in the process that exports it, which another process opens through
 * /proc. That needs no thread in the exporting process, and fails at once if that process or the memory is gone.
 */
#include "cudart/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

STANDIN_SITE(cudaIpcGetMemHandle)
STANDIN_SITE(cudaIpcOpenMemHandle)
STANDIN_SITE(cudaIpcCloseMemHandle)

#define HANDLE_MARK UINT64_C(0x6e63636c346a4d48)

/* What is in a cudaIpcMemHandle_t. Another inode means that the descriptor's number stands for another file by now. */
struct shared {
  uint64_t mark;
  uint64_t inode;
  uint64_t bytes;
  int32_t process;
  int32_t memfd;
  int64_t device; /* leaves no padding, which would not be initialised */
};
_Static_assert(sizeof(struct shared) <= sizeof(cudaIpcMemHandle_t), "fits the handle");

/* Memory of another process that is mapped here. */
struct opened {
  struct shared shared;
  int references;
  void *base;
  struct opened *next;
};
static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *all_opened;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr) {
  ENTER(cudaIpcGetMemHandle);
  struct region r;
  struct stat status;
  if (!handle || !region_find(devPtr, &r) || r.origin != BY_MALLOC || r.memfd < 0) RETURN(cudaErrorInvalidValue);
  if (fstat(r.memfd, &status) != 0) RETURN(cudaErrorInvalidValue);
  struct shared shared = {.mark = HANDLE_MARK, .inode = status.st_ino, .bytes = r.bytes, .process = getpid(),
                          .memfd = r.memfd, .device = r.device};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &shared, sizeof shared);
  RETURN(cudaSuccess);
}

/* Returns a descriptor of the memory here, -1 if it does not exist any more. */
static int open_memfd(const struct shared *shared) {
  char path[64];
  struct stat status;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", shared->process, shared->memfd);
  int memfd = open(path, O_RDWR | O_CLOEXEC);
  if (memfd < 0) return -1;
  if (fstat(memfd, &status) == 0 && status.st_ino == shared->inode) return memfd;
  close(memfd);
  return -1;
}

/* Needs opened_lock. */
static struct opened *opened_before(const struct shared *shared) {
  struct opened *o = all_opened;
  while (o && (o->shared.process != shared->process || o->shared.inode != shared->inode)) o = o->next;
  return o;
}

/* Returns NULL if the memory does not exist any more. Needs opened_lock. */
static struct opened *open_first(const struct shared *shared) {
  int memfd = open_memfd(shared);
  if (memfd < 0) return NULL;
  void *base = memfd_map(memfd, shared->bytes);
  if (!base) {
    close(memfd);
    return NULL;
  }
  pthread_mutex_lock(&regions_lock);
  region_insert((struct region){
      .base = base,
      .bytes = shared->bytes,
      .type = cudaMemoryTypeDevice,
      .origin = BY_IPC,
      .device = (int)shared->device,
      .memfd = memfd,
  });
  pthread_mutex_unlock(&regions_lock);
  struct opened *o = malloc(sizeof *o);
  *o = (struct opened){.shared = *shared, .base = base, .next = all_opened};
  all_opened = o;
  nccl4j_standin_count(KIND_MAPPING, 1);
  return o;
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
  ENTER(cudaIpcOpenMemHandle);
  struct shared shared;
  if (!devPtr || flags != cudaIpcMemLazyEnablePeerAccess) RETURN(cudaErrorInvalidValue);
  memcpy(&shared, &handle, sizeof shared);
  if (shared.mark != HANDLE_MARK) RETURN(cudaErrorInvalidResourceHandle);
  if (shared.process == getpid()) RETURN(cudaErrorDeviceUninitialized); /* as CUDA: not in the process that exports */
  if (!device_valid((int)shared.device)) RETURN(cudaErrorInvalidDevice);
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&opened_lock);
  struct opened *o = opened_before(&shared);
  if (!o) o = open_first(&shared);
  if (o) {
    o->references++;
    *devPtr = o->base;
  }
  pthread_mutex_unlock(&opened_lock);
  RETURN(o ? cudaSuccess : cudaErrorMapBufferObjectFailed);
}

/* Removes the memory of the last reference from the table. Needs opened_lock. */
static void close_last(struct opened *o) {
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_at(o->base);
  int memfd = r->memfd;
  region_remove(r);
  pthread_mutex_unlock(&regions_lock);
  nccl4j_standin_count(KIND_MAPPING, -1);
  unmap_later(o->base, o->shared.bytes, memfd);
  free(o);
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr) {
  ENTER(cudaIpcCloseMemHandle);
  bool found = false;
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&opened_lock);
  for (struct opened **at = &all_opened; *at && !found;) {
    struct opened *o = *at;
    found = o->base == devPtr;
    if (found && --o->references == 0) {
      *at = o->next;
      close_last(o);
    } else {
      at = &o->next;
    }
  }
  pthread_mutex_unlock(&opened_lock);
  RETURN(found ? cudaSuccess : cudaErrorInvalidValue);
}
