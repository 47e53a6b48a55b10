/*
 * Physical allocations: handles, properties, and descriptors that other processes import.
 *
 * The memory is a memfd and an exported descriptor is a duplicate of it. Fresh memory is zero, which NCCL relies on.
 */
#include "physical.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_GRANULARITY ((size_t)2 << 20)

size_t granularity_of(CUmemLocationType place) { return host_location(place) ? memory_page() : DEVICE_GRANULARITY; }

bool host_location(CUmemLocationType place) {
  return place == CU_MEM_LOCATION_TYPE_HOST || place == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool on_device(const struct physical *p) { return p->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE; }

static void physical_destroy(void *object) {
  struct physical *p = object;
  if (on_device(p) && !p->imported) memory_charge(p->properties.location.id, -(int64_t)p->bytes);
  close(p->memfd);
  free(p);
}

static struct physical *physicals;

static ino_t inode_of(int memfd) {
  struct stat status;
  return fstat(memfd, &status) == 0 ? status.st_ino : 0;
}

/* Takes the descriptor. */
static CUmemGenericAllocationHandle physical_new(int memfd, size_t bytes, const CUmemAllocationProp *properties,
                                                 bool imported) {
  struct physical *p = calloc(1, sizeof *p);
  p->handles = 1;
  p->memfd = memfd;
  p->inode = inode_of(memfd);
  p->bytes = bytes;
  p->imported = imported;
  p->properties = *properties;
  object_add(p, KIND_PHYSICAL, physical_destroy);
  pthread_mutex_lock(&regions_lock);
  p->next = physicals;
  physicals = p;
  pthread_mutex_unlock(&regions_lock);
  return (CUmemGenericAllocationHandle)(uintptr_t)p;
}

/* Adds a handle to the allocation that this process has behind the descriptor; 0: it has none. */
static CUmemGenericAllocationHandle handle_of(int memfd) {
  ino_t inode = inode_of(memfd);
  pthread_mutex_lock(&regions_lock);
  struct physical *p = physicals;
  while (p && p->inode != inode) p = p->next;
  if (p) p->handles++;
  pthread_mutex_unlock(&regions_lock);
  return (CUmemGenericAllocationHandle)(uintptr_t)p;
}

struct physical *physical_get(CUmemGenericAllocationHandle handle) {
  struct physical *p = object_get((void *)(uintptr_t)handle, KIND_PHYSICAL);
  if (!p) return NULL;
  pthread_mutex_lock(&regions_lock);
  bool valid = p->handles > 0;
  pthread_mutex_unlock(&regions_lock);
  if (valid) return p;
  object_put(p);
  return NULL;
}

void physical_add(struct physical *p, int handles, int mappings) {
  pthread_mutex_lock(&regions_lock);
  p->handles += handles;
  p->mappings += mappings;
  bool ended = p->handles == 0 && p->mappings == 0;
  struct physical **at = &physicals;
  while (ended && *at != p) at = &(*at)->next;
  if (ended) *at = p->next;
  pthread_mutex_unlock(&regions_lock);
  if (!ended) return;
  object_retire(p, KIND_PHYSICAL);
  object_put(p);
}

/* ---- creating and releasing ---- */

/* Whether this emulation has such memory; CUDA's order of the errors is not documented. */
static CUresult check_properties(const CUmemAllocationProp *properties) {
  const CUmemLocation *place = &properties->location;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->win32HandleMetaData || properties->allocFlags.compressionType) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocFlags.gpuDirectRDMACapable || properties->allocFlags.usage) return CUDA_ERROR_NOT_SUPPORTED;
  switch (place->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: return device_valid(place->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return place->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST: /* cannot be shared with other processes */
      return properties->requestedHandleTypes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

DRIVER_ENTRY(cuMemGetAllocationGranularity, 10020)
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
  DRIVER_ENTER(cuMemGetAllocationGranularity);
  if (!granularity || !prop) return CUDA_ERROR_INVALID_VALUE;
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_properties(prop);
  if (result == CUDA_SUCCESS) *granularity = granularity_of(prop->location.type);
  return result;
}

DRIVER_ENTRY(cuMemCreate, 10020)
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  DRIVER_ENTER(cuMemCreate);
  if (!handle || !prop || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_properties(prop);
  if (result != CUDA_SUCCESS) return result;
  if (size == 0 || size % granularity_of(prop->location.type) != 0) return CUDA_ERROR_INVALID_VALUE;
  int device = host_location(prop->location.type) ? -1 : prop->location.id;
  if (device >= 0 && !memory_charge(device, (int64_t)size)) return CUDA_ERROR_OUT_OF_MEMORY;
  int memfd = memfd_new(size, device);
  if (memfd < 0) {
    if (device >= 0) memory_charge(device, -(int64_t)size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = physical_new(memfd, size, prop, false);
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuMemRelease, 10020)
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  DRIVER_ENTER(cuMemRelease);
  struct physical *p = physical_get(handle);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  physical_add(p, -1, 0);
  object_put(p);
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuMemRetainAllocationHandle, 11000)
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  DRIVER_ENTER(cuMemRetainAllocationHandle);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_at(addr);
  struct physical *p = r ? r->physical : NULL;
  if (p) p->handles++; /* its mapping keeps it alive until the lock is released, this handle from then on */
  pthread_mutex_unlock(&regions_lock);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuMemGetAllocationPropertiesFromHandle, 10020)
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  DRIVER_ENTER(cuMemGetAllocationPropertiesFromHandle);
  struct physical *p = prop ? physical_get(handle) : NULL;
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  *prop = p->properties;
  object_put(p);
  return CUDA_SUCCESS;
}

/* ---- sharing ---- */

DRIVER_ENTRY(cuMemExportToShareableHandle, 10020)
CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  DRIVER_ENTER(cuMemExportToShareableHandle);
  if (!shareableHandle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  struct physical *p = physical_get(handle);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  bool allowed = p->properties.requestedHandleTypes & handleType;
  int copy = allowed ? fcntl(p->memfd, F_DUPFD_CLOEXEC, 0) : -1;
  object_put(p);
  if (!allowed) return CUDA_ERROR_INVALID_VALUE;
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *(int *)shareableHandle = copy;
  return CUDA_SUCCESS;
}

/* The descriptor stays the caller's. */
DRIVER_ENTRY(cuMemImportFromShareableHandle, 10020)
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  DRIVER_ENTER(cuMemImportFromShareableHandle);
  size_t bytes;
  int device, memfd = (int)(intptr_t)osHandle;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!memfd_describe(memfd, &bytes, &device)) return CUDA_ERROR_INVALID_VALUE;
  if (device >= nccl4j_standin_device_count()) return CUDA_ERROR_NOT_SUPPORTED; /* this process has fewer devices */
  *handle = handle_of(memfd);
  if (*handle) return CUDA_SUCCESS;
  int copy = fcntl(memfd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemAllocationProp properties = {
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location.type = device < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
      .location.id = device < 0 ? 0 : device,
  };
  *handle = physical_new(copy, bytes, &properties, true);
  return CUDA_SUCCESS;
}
