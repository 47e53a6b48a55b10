/*
 * The table of all memory that CUDA knows, so that copies beyond an end, in a wrong direction or of foreign pointers
 * are refused as by CUDA, and the queries about pointers.
 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaHostGetDevicePointer)
STANDIN_SITE(cudaMemGetInfo)
STANDIN_SITE(cudaPointerGetAttributes)

pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;

/* Sorted by address, for binary search. */
static struct region *regions;
static size_t region_count, region_capacity;
static uint64_t last_id;
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

struct region *region_at(const void *pointer) {
  size_t i = above(pointer);
  if (i == 0) return NULL;
  struct region *r = &regions[i - 1];
  return (uintptr_t)pointer - (uintptr_t)r->base < r->bytes ? r : NULL;
}

struct region *region_from(const void *pointer) {
  struct region *r = region_at(pointer);
  size_t next = above(pointer);
  return r ? r : next < region_count ? &regions[next] : NULL;
}

bool region_overlaps(const void *pointer, size_t bytes) {
  const struct region *r = region_from(pointer);
  uintptr_t base = r ? (uintptr_t)r->base : 0, start = (uintptr_t)pointer;
  return r && (base < start || base - start < bytes); /* without start + bytes, which may overflow */
}

void region_insert(struct region r) {
  if (region_count == region_capacity) {
    region_capacity = region_capacity ? 2 * region_capacity : 256;
    regions = realloc(regions, region_capacity * sizeof *regions);
  }
  size_t i = above(r.base);
  memmove(&regions[i + 1], &regions[i], (region_count - i) * sizeof *regions);
  r.id = ++last_id;
  regions[i] = r;
  region_count++;
}

void region_remove(struct region *r) {
  size_t i = (size_t)(r - regions);
  memmove(&regions[i], &regions[i + 1], (region_count - i - 1) * sizeof *regions);
  region_count--;
}

bool region_find(const void *pointer, struct region *found) {
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_at(pointer);
  if (r) *found = *r;
  pthread_mutex_unlock(&regions_lock);
  return r != NULL;
}

bool memory_charge(int device, int64_t bytes) {
  uint64_t capacity = device_memory();
  pthread_mutex_lock(&regions_lock);
  bool fits = bytes <= 0 || ((uint64_t)bytes <= capacity && used[device] <= capacity - (uint64_t)bytes);
  if (fits) used[device] += (uint64_t)bytes;
  pthread_mutex_unlock(&regions_lock);
  return fits;
}

/* ---- queries ---- */

/* Whether the mask has the device, or anyone for device -1. */
static bool permitted(uint64_t devices, bool host, int device) {
  return device < 0 ? devices || host : devices >> device & 1;
}

/* Whether kernels of the device may read the region, or write to it; device -1: whether anyone may. */
static bool usable(const struct region *r, int device, bool writes) {
  const struct access *a = &r->access;
  if (r->origin == BY_MAP)
    return writes ? permitted(a->writers, a->host_writes, device) : permitted(a->readers, a->host_reads, device);
  if (device < 0 || device == r->device || r->type != cudaMemoryTypeDevice) return true;
  if (r->origin == BY_POOL) return false; /* cudaMemPoolSetAccess, which could allow it, is not emulated */
  return r->origin == BY_IPC || device_accesses_peer(device, r->device);
}

/* Mappings of cuMemMap side by side are one range to their users; other allocations side by side are not. */
static bool range_usable(const void *pointer, size_t bytes, int device, bool writes) {
  const char *at = pointer;
  size_t left = bytes;
  bool continues = true;
  pthread_mutex_lock(&regions_lock);
  while (left > 0) {
    const struct region *r = region_at(at);
    if (!r || !usable(r, device, writes) || (left < bytes && !(continues && r->origin == BY_MAP))) break;
    continues = r->origin == BY_MAP;
    size_t some = r->bytes - (size_t)(at - r->base);
    left -= some < left ? some : left;
    at += some;
  }
  pthread_mutex_unlock(&regions_lock);
  return left == 0;
}

bool nccl4j_standin_usable(const void *pointer, size_t bytes, int device) {
  return range_usable(pointer, bytes, device, false);
}

bool nccl4j_standin_writable(const void *pointer, size_t bytes, int device) {
  return range_usable(pointer, bytes, device, true);
}

bool nccl4j_standin_reachable(const void *pointer, size_t bytes) { return nccl4j_standin_usable(pointer, bytes, -1); }

int nccl4j_standin_memory_device(const void *pointer) {
  struct region r;
  if (!region_find(pointer, &r)) return -2;
  return r.type == cudaMemoryTypeDevice ? r.device : -1;
}

bool nccl4j_standin_by_nccl(const void *pointer, size_t bytes) {
  struct region r;
  return region_find(pointer, &r) && r.origin == BY_NCCL && bytes <= r.bytes - (size_t)((const char *)pointer - r.base);
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags) {
  ENTER(cudaHostGetDevicePointer);
  struct region r;
  if (!pDevice || flags != 0 || !region_find(pHost, &r) || r.type != cudaMemoryTypeHost) RETURN(cudaErrorInvalidValue);
  *pDevice = pHost;
  RETURN(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  ENTER(cudaMemGetInfo);
  int device;
  if (!free_bytes || !total) RETURN(cudaErrorInvalidValue);
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) RETURN(error);
  uint64_t capacity = device_memory();
  pthread_mutex_lock(&regions_lock);
  *free_bytes = used[device] < capacity ? capacity - used[device] : 0;
  pthread_mutex_unlock(&regions_lock);
  *total = capacity;
  RETURN(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  ENTER(cudaPointerGetAttributes);
  struct region r;
  if (!attributes) RETURN(cudaErrorInvalidValue);
  *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId};
  if (!region_find(ptr, &r)) RETURN(cudaSuccess);
  attributes->type = r.type;
  attributes->device = r.device;
  attributes->devicePointer = (void *)ptr;
  attributes->hostPointer = r.type == cudaMemoryTypeDevice ? NULL : (void *)ptr;
  RETURN(cudaSuccess);
}
