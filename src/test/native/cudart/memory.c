/*
 * Allocating and freeing: device memory is host memory with an owner, behind a descriptor of its own, so that other
 * processes can map it.
 *
 * With the stand-in's NCCL, allocating and freeing wait for the pending work of the device, for pinned memory of every
 * device, as the CUDA guide permits. NVIDIA's NCCL would never end: it allocates pinned memory for one rank while a
 * kernel of another waits for that rank. With it only cudaFree waits, as CUDA is known to. If a wait ends early because
 * a stream has failed, or there is none, the freed range becomes invalid at once, and its bytes are freed when all work
 * that is pending in any stream is complete.
 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

STANDIN_SITE(cudaMalloc)
STANDIN_SITE(cudaFree)
STANDIN_SITE(cudaMallocHost)
STANDIN_SITE(cudaFreeHost)
STANDIN_SITE(cudaMallocManaged)
STANDIN_SITE(cudaHostAlloc)
STANDIN_SITE(cudaHostRegister)
STANDIN_SITE(cudaHostUnregister)

#define ALIGNMENT 4096      /* required by NCCL for a window, more than CUDA guarantees */
#define POISON 0xA5         /* fresh device memory is not zero */
#define POISON_BYTES 65536  /* filling gigabytes would take too long */

static enum nccl4j_standin_kind kind_of(enum cudaMemoryType type) {
  return type == cudaMemoryTypeHost ? KIND_PINNED : KIND_MEMORY;
}

/* ---- allocating and freeing ---- */

#define EVERY_DEVICE (-1)

void nccl4j_standin_wait_for_devices(void) { device_synchronize(EVERY_DEVICE); }

static void wait_for_work(const struct region *r, bool frees) {
  bool host = r->type == cudaMemoryTypeHost;
  if (standin_nccl()) device_synchronize(host ? EVERY_DEVICE : r->device);
  else if (frees && !host) device_synchronize(r->device);
}

/* Gives the region its bytes. Only device memory can be shared with other processes. */
static bool provide(struct region *r) {
  void *base = NULL;
  r->memfd = -1;
  if (r->type != cudaMemoryTypeDevice) {
    if (posix_memalign(&base, ALIGNMENT, r->bytes) != 0) return false;
  } else {
    r->memfd = memfd_new(r->bytes, r->device);
    if (r->memfd >= 0) base = memfd_map(r->memfd, r->bytes);
    if (!base && r->memfd >= 0) close(r->memfd);
  }
  r->base = base;
  return base != NULL;
}

cudaError_t memory_allocate(void **pointer, struct region r) {
  bool charged = r.type == cudaMemoryTypeDevice;
  *pointer = NULL;
  if (r.bytes == 0) return cudaSuccess;
  if (charged && !memory_charge(r.device, (int64_t)r.bytes)) return cudaErrorMemoryAllocation;
  if (!provide(&r)) {
    if (charged) memory_charge(r.device, -(int64_t)r.bytes);
    return cudaErrorMemoryAllocation;
  }
  memset(r.base, POISON, r.bytes < POISON_BYTES ? r.bytes : POISON_BYTES);
  pthread_mutex_lock(&regions_lock);
  region_insert(r);
  pthread_mutex_unlock(&regions_lock);
  nccl4j_standin_count(kind_of(r.type), 1);
  *pointer = r.base;
  return cudaSuccess;
}

static cudaError_t allocate(void **pointer, struct region r) {
  if (r.bytes > 0) wait_for_work(&r, false);
  return memory_allocate(pointer, r);
}

static bool freeable(const struct region *r, bool host, bool by_nccl) {
  switch (r->origin) {
    case BY_MALLOC:
    case BY_POOL: return !host;
    case BY_HOST_ALLOC: return host;
    case BY_NCCL: return by_nccl;
    default: return false;
  }
}

/* Removes the allocation that starts here; the caller frees its bytes. */
static bool forget(void *pointer, bool host, bool by_nccl, struct region *gone) {
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_at(pointer);
  bool mine = r && r->base == pointer && freeable(r, host, by_nccl);
  if (mine) {
    *gone = *r;
    region_remove(r);
  }
  pthread_mutex_unlock(&regions_lock);
  if (!mine) return false;
  if (gone->type == cudaMemoryTypeDevice) memory_charge(gone->device, -(int64_t)gone->bytes);
  nccl4j_standin_count(kind_of(gone->type), -1);
  return true;
}

static cudaError_t release_at_once(void *pointer, bool host, bool by_nccl) {
  struct region r;
  if (!pointer) return cudaSuccess;
  if (!forget(pointer, host, by_nccl, &r)) return cudaErrorInvalidValue;
  if (r.memfd >= 0) unmap_later(r.base, r.bytes, r.memfd);
  else streams_after_pending(free, r.base);
  return cudaSuccess;
}

cudaError_t memory_release(void *pointer) { return release_at_once(pointer, false, false); }

static cudaError_t release(void *pointer, bool host, bool by_nccl) {
  struct region r;
  if (pointer && region_find(pointer, &r)) wait_for_work(&r, true);
  return release_at_once(pointer, host, by_nccl);
}

cudaError_t nccl4j_standin_allocate(void **pointer, size_t bytes, int device) {
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) return error;
  struct region r = {.bytes = bytes, .type = cudaMemoryTypeDevice, .origin = BY_NCCL, .device = device};
  return allocate(pointer, r);
}

cudaError_t nccl4j_standin_free(void *pointer) {
  cudaError_t error = nccl4j_standin_unsafe();
  return error == cudaSuccess ? release(pointer, false, true) : error;
}

static cudaError_t allocate_here(void **pointer, size_t bytes, enum cudaMemoryType type, enum origin origin) {
  struct region r = {.bytes = bytes, .type = type, .origin = origin};
  if (!pointer) return cudaErrorInvalidValue;
  cudaError_t error = device_current(&r.device);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  return error == cudaSuccess ? allocate(pointer, r) : error;
}

cudaError_t cudaMalloc(void **devPtr, size_t size) {
  ENTER(cudaMalloc);
  RETURN(allocate_here(devPtr, size, cudaMemoryTypeDevice, BY_MALLOC));
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags) {
  ENTER(cudaMallocManaged);
  if (size == 0) RETURN(cudaErrorInvalidValue);
  /* Both mean the same where devices may access managed memory at any time (cudaDevAttrConcurrentManagedAccess). */
  if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) RETURN(cudaErrorInvalidValue);
  RETURN(allocate_here(devPtr, size, cudaMemoryTypeManaged, BY_MALLOC));
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
  ENTER(cudaMallocHost);
  RETURN(allocate_here(ptr, size, cudaMemoryTypeHost, BY_HOST_ALLOC));
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
  ENTER(cudaHostAlloc);
  /* With unified addressing pinned memory is always portable and mapped; combined writes are a matter of speed. */
  if (flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
    RETURN(cudaErrorInvalidValue);
  RETURN(allocate_here(pHost, size, cudaMemoryTypeHost, BY_HOST_ALLOC));
}

cudaError_t cudaFree(void *devPtr) {
  ENTER(cudaFree);
  int device;
  cudaError_t error = device_current(&device);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  if (error == cudaSuccess) error = release(devPtr, false, false);
  RETURN(error);
}

cudaError_t cudaFreeHost(void *ptr) {
  ENTER(cudaFreeHost);
  cudaError_t error = nccl4j_standin_unsafe();
  if (error == cudaSuccess) error = release(ptr, true, false);
  RETURN(error);
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
  ENTER(cudaHostRegister);
  const unsigned int portable_and_mapped = cudaHostRegisterPortable | cudaHostRegisterMapped; /* always, as above */
  struct region r = {.base = ptr, .bytes = size, .type = cudaMemoryTypeHost, .origin = BY_REGISTER, .memfd = -1};
  if (!ptr || size == 0) RETURN(cudaErrorInvalidValue);
  if (flags & ~(portable_and_mapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly))
    RETURN(cudaErrorInvalidValue);
  /* Memory of other devices is not emulated, and no device has cudaDevAttrHostRegisterReadOnlySupported. */
  if (flags & ~portable_and_mapped) RETURN(cudaErrorNotSupported);
  cudaError_t error = device_current(&r.device);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&regions_lock);
  bool overlaps = region_overlaps(ptr, size);
  if (!overlaps) region_insert(r);
  pthread_mutex_unlock(&regions_lock);
  if (overlaps) RETURN(cudaErrorHostMemoryAlreadyRegistered);
  nccl4j_standin_count(KIND_PINNED, 1);
  RETURN(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *ptr) {
  ENTER(cudaHostUnregister);
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_at(ptr);
  bool mine = r && r->base == ptr && r->origin == BY_REGISTER;
  if (mine) region_remove(r);
  pthread_mutex_unlock(&regions_lock);
  if (mine) nccl4j_standin_count(KIND_PINNED, -1);
  RETURN(mine ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
