/*
 * Memory: device memory is host memory with an owner. The ranges of all allocations are known, so that copies beyond an
 * end, in a wrong direction or of foreign pointers are refused as by CUDA (copy.c).
 *
 * Allocating and freeing wait for the pending work of the device, for pinned memory of every device, as the CUDA guide
 * permits. If a wait ends early because a stream has failed, the freed range becomes invalid at once, and its bytes are
 * freed when all work that is pending in any stream is complete.
 */
#include "cudart.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaMalloc)
STANDIN_SITE(cudaFree)
STANDIN_SITE(cudaMallocAsync)
STANDIN_SITE(cudaFreeAsync)
STANDIN_SITE(cudaMallocHost)
STANDIN_SITE(cudaFreeHost)
STANDIN_SITE(cudaMallocManaged)
STANDIN_SITE(cudaHostAlloc)
STANDIN_SITE(cudaHostRegister)
STANDIN_SITE(cudaHostUnregister)
STANDIN_SITE(cudaHostGetDevicePointer)
STANDIN_SITE(cudaHostGetFlags)
STANDIN_SITE(cudaMemGetInfo)
STANDIN_SITE(cudaPointerGetAttributes)

#define ALIGNMENT 4096      /* required by NCCL for a window, more than CUDA guarantees */
#define POISON 0xA5         /* fresh device memory is not zero */
#define POISON_BYTES 65536  /* filling gigabytes would take too long */

enum origin { BY_MALLOC, BY_NCCL, BY_HOST_ALLOC, BY_REGISTER };

struct region {
  char *base;
  size_t bytes;
  enum cudaMemoryType type;
  enum origin origin;
  int device;
  unsigned int flags;
};

/* Sorted by address, for binary search. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static size_t region_count, region_capacity;
static uint64_t used[MAX_DEVICES];

/* Returns the index of the first region that starts above the pointer. */
static size_t above(const void *pointer) {
  size_t low = 0, high = region_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if ((uintptr_t)regions[middle].base <= (uintptr_t)pointer) low = middle + 1;
    else high = middle;
  }
  return low;
}

static struct region *region_of(const void *pointer) {
  size_t i = above(pointer);
  if (i == 0) return NULL;
  struct region *r = &regions[i - 1];
  return (uintptr_t)pointer - (uintptr_t)r->base < r->bytes ? r : NULL;
}

static bool find(const void *pointer, struct region *found) {
  pthread_mutex_lock(&lock);
  struct region *r = region_of(pointer);
  if (r) *found = *r;
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

static void region_insert(struct region r) {
  if (region_count == region_capacity) {
    region_capacity = region_capacity ? 2 * region_capacity : 256;
    regions = realloc(regions, region_capacity * sizeof *regions);
  }
  size_t i = above(r.base);
  memmove(&regions[i + 1], &regions[i], (region_count - i) * sizeof *regions);
  regions[i] = r;
  region_count++;
}

static void region_remove(struct region *r) {
  size_t i = (size_t)(r - regions);
  memmove(&regions[i], &regions[i + 1], (region_count - i - 1) * sizeof *regions);
  region_count--;
}

static enum nccl4j_standin_kind kind_of(enum cudaMemoryType type) {
  return type == cudaMemoryTypeHost ? KIND_PINNED : KIND_MEMORY;
}

/* ---- allocating and freeing ---- */

static cudaError_t charge(int device, size_t bytes) {
  uint64_t capacity = device_memory();
  cudaError_t error = cudaErrorMemoryAllocation;
  pthread_mutex_lock(&lock);
  if (bytes <= capacity && used[device] <= capacity - bytes) {
    used[device] += bytes;
    error = cudaSuccess;
  }
  pthread_mutex_unlock(&lock);
  return error;
}

#define EVERY_DEVICE (-1)

static int waits_for(enum cudaMemoryType type, int device) {
  return type == cudaMemoryTypeHost ? EVERY_DEVICE : device;
}

static cudaError_t allocate_at_once(void **pointer, struct region r) {
  void *base = NULL;
  *pointer = NULL;
  if (r.bytes == 0) return cudaSuccess;
  cudaError_t error = r.type == cudaMemoryTypeDevice ? charge(r.device, r.bytes) : cudaSuccess;
  if (error != cudaSuccess) return error;
  if (posix_memalign(&base, ALIGNMENT, r.bytes) != 0) {
    pthread_mutex_lock(&lock);
    if (r.type == cudaMemoryTypeDevice) used[r.device] -= r.bytes;
    pthread_mutex_unlock(&lock);
    return cudaErrorMemoryAllocation;
  }
  memset(base, POISON, r.bytes < POISON_BYTES ? r.bytes : POISON_BYTES);
  r.base = base;
  pthread_mutex_lock(&lock);
  region_insert(r);
  pthread_mutex_unlock(&lock);
  nccl4j_standin_count(kind_of(r.type), 1);
  *pointer = base;
  return cudaSuccess;
}

static cudaError_t allocate(void **pointer, struct region r) {
  if (r.bytes > 0) device_synchronize(waits_for(r.type, r.device));
  return allocate_at_once(pointer, r);
}

/* Removes the allocation that starts here; the caller frees its bytes. */
static cudaError_t forget(void *pointer, bool host, bool by_nccl) {
  pthread_mutex_lock(&lock);
  struct region *r = region_of(pointer);
  bool mine = r && r->base == pointer && r->origin != BY_REGISTER && host == (r->type == cudaMemoryTypeHost) &&
              (by_nccl || r->origin != BY_NCCL);
  if (mine) {
    if (r->type == cudaMemoryTypeDevice) used[r->device] -= r->bytes;
    nccl4j_standin_count(kind_of(r->type), -1);
    region_remove(r);
  }
  pthread_mutex_unlock(&lock);
  return mine ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t release_at_once(void *pointer, bool host, bool by_nccl) {
  if (!pointer) return cudaSuccess;
  cudaError_t error = forget(pointer, host, by_nccl);
  if (error == cudaSuccess) streams_after_pending(free, pointer);
  return error;
}

static cudaError_t release(void *pointer, bool host, bool by_nccl) {
  struct region r;
  if (pointer && find(pointer, &r)) device_synchronize(waits_for(r.type, r.device));
  return release_at_once(pointer, host, by_nccl);
}

cudaError_t nccl4j_standin_allocate(void **pointer, size_t bytes, int device) {
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) return error;
  struct region r = {.bytes = bytes, .type = cudaMemoryTypeDevice, .origin = BY_NCCL, .device = device};
  return allocate(pointer, r);
}

bool nccl4j_standin_by_nccl(const void *pointer, size_t bytes) {
  struct region r;
  return find(pointer, &r) && r.origin == BY_NCCL && bytes <= r.bytes - (size_t)((const char *)pointer - r.base);
}

cudaError_t nccl4j_standin_free(void *pointer) {
  cudaError_t error = nccl4j_standin_unsafe();
  return error == cudaSuccess ? release(pointer, false, true) : error;
}

static cudaError_t allocate_here(void **pointer, size_t bytes, enum cudaMemoryType type, enum origin origin,
                                 unsigned int flags) {
  struct region r = {.bytes = bytes, .type = type, .origin = origin, .flags = flags};
  if (!pointer) return cudaErrorInvalidValue;
  cudaError_t error = device_current(&r.device);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  return error == cudaSuccess ? allocate(pointer, r) : error;
}

cudaError_t cudaMalloc(void **devPtr, size_t size) {
  ENTER(cudaMalloc);
  RETURN(allocate_here(devPtr, size, cudaMemoryTypeDevice, BY_MALLOC, 0));
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags) {
  ENTER(cudaMallocManaged);
  if (size == 0) RETURN(cudaErrorInvalidValue);
  RETURN(allocate_here(devPtr, size, cudaMemoryTypeManaged, BY_MALLOC, flags));
}

cudaError_t cudaMallocHost(void **ptr, size_t size) {
  ENTER(cudaMallocHost);
  RETURN(allocate_here(ptr, size, cudaMemoryTypeHost, BY_HOST_ALLOC, cudaHostAllocDefault));
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
  ENTER(cudaHostAlloc);
  if (flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
    RETURN(cudaErrorInvalidValue);
  RETURN(allocate_here(pHost, size, cudaMemoryTypeHost, BY_HOST_ALLOC, flags));
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

/* Allocates at once, which work enqueued later cannot distinguish from an allocation in stream order. */
cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream) {
  ENTER(cudaMallocAsync);
  struct region r = {.bytes = size, .type = cudaMemoryTypeDevice, .origin = BY_MALLOC};
  if (!devPtr) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(hStream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  r.device = s->device;
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  object_put(s);
  RETURN(capturing ? cudaErrorStreamCaptureUnsupported : allocate_at_once(devPtr, r));
}

cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream) {
  ENTER(cudaFreeAsync);
  stream_t *s = nccl4j_standin_stream_get(hStream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  object_put(s);
  if (capturing) RETURN(cudaErrorStreamCaptureUnsupported);
  if (!devPtr) RETURN(cudaErrorInvalidValue);
  RETURN(release_at_once(devPtr, false, false));
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags) {
  ENTER(cudaHostRegister);
  struct region r = {.base = ptr, .bytes = size, .type = cudaMemoryTypeHost, .origin = BY_REGISTER, .flags = flags};
  if (!ptr || size == 0) RETURN(cudaErrorInvalidValue);
  cudaError_t error = device_current(&r.device);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&lock);
  size_t next = above(ptr);
  bool overlaps = region_of(ptr) || (next < region_count && (uintptr_t)regions[next].base < (uintptr_t)ptr + size);
  if (!overlaps) region_insert(r);
  pthread_mutex_unlock(&lock);
  if (overlaps) RETURN(cudaErrorHostMemoryAlreadyRegistered);
  nccl4j_standin_count(KIND_PINNED, 1);
  RETURN(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *ptr) {
  ENTER(cudaHostUnregister);
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) RETURN(error);
  pthread_mutex_lock(&lock);
  struct region *r = region_of(ptr);
  bool mine = r && r->base == ptr && r->origin == BY_REGISTER;
  if (mine) region_remove(r);
  pthread_mutex_unlock(&lock);
  if (mine) nccl4j_standin_count(KIND_PINNED, -1);
  RETURN(mine ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

/* ---- queries ---- */

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags) {
  ENTER(cudaHostGetDevicePointer);
  struct region r;
  if (!pDevice || flags != 0 || !find(pHost, &r) || r.type != cudaMemoryTypeHost) RETURN(cudaErrorInvalidValue);
  *pDevice = pHost;
  RETURN(cudaSuccess);
}

cudaError_t cudaHostGetFlags(unsigned int *pFlags, void *pHost) {
  ENTER(cudaHostGetFlags);
  struct region r;
  if (!pFlags || !find(pHost, &r) || r.type != cudaMemoryTypeHost) RETURN(cudaErrorInvalidValue);
  *pFlags = r.flags;
  RETURN(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  ENTER(cudaMemGetInfo);
  int device;
  if (!free_bytes || !total) RETURN(cudaErrorInvalidValue);
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) RETURN(error);
  uint64_t capacity = device_memory();
  pthread_mutex_lock(&lock);
  *free_bytes = used[device] < capacity ? capacity - used[device] : 0;
  pthread_mutex_unlock(&lock);
  *total = capacity;
  RETURN(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  ENTER(cudaPointerGetAttributes);
  struct region r;
  if (!attributes) RETURN(cudaErrorInvalidValue);
  *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId};
  if (!find(ptr, &r)) RETURN(cudaSuccess);
  attributes->type = r.type;
  attributes->device = r.device;
  attributes->devicePointer = (void *)ptr;
  attributes->hostPointer = r.type == cudaMemoryTypeDevice ? NULL : (void *)ptr;
  RETURN(cudaSuccess);
}

bool nccl4j_standin_reachable(const void *pointer, size_t bytes) {
  struct region r;
  return bytes == 0 || (find(pointer, &r) && bytes <= r.bytes - (size_t)((const char *)pointer - r.base));
}

int nccl4j_standin_memory_device(const void *pointer) {
  struct region r;
  if (!find(pointer, &r)) return -2;
  return r.type == cudaMemoryTypeDevice ? r.device : -1;
}
