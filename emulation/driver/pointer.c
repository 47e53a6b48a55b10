/* Queries about addresses. */
#include "physical.h"

/* Finds the memory that contains the address; either result may be NULL. */
DRIVER_ENTRY(cuMemGetAddressRange, 3020)
CUresult cuMemGetAddressRange(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  DRIVER_ENTER(cuMemGetAddressRange);
  struct region r;
  if (!region_find((void *)(uintptr_t)dptr, &r)) return CUDA_ERROR_NOT_FOUND;
  if (pbase) *pbase = (CUdeviceptr)(uintptr_t)r.base;
  if (psize) *psize = r.bytes;
  return CUDA_SUCCESS;
}

static unsigned long long handle_types(const struct region *r) {
  unsigned long long types = 0;
  pthread_mutex_lock(&regions_lock);
  const struct region *now = region_at(r->base);
  if (now && now->id == r->id && r->physical) types = r->physical->properties.requestedHandleTypes;
  pthread_mutex_unlock(&regions_lock);
  return types;
}

static CUresult attribute_of_memory(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                                    const struct region *r) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned int *)data = r->type == cudaMemoryTypeHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *)data = ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (r->type == cudaMemoryTypeDevice) return CUDA_ERROR_INVALID_VALUE;
      *(void **)data = (void *)(uintptr_t)ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: /* cuPointerSetAttribute, which could set it, is not emulated */
      *(unsigned int *)data = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long *)data = r->id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *(unsigned int *)data = r->type == cudaMemoryTypeManaged;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)data = r->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *(unsigned int *)data = r->origin == BY_MALLOC && r->type == cudaMemoryTypeDevice;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *(unsigned long long *)data = handle_types(r);
      return CUDA_SUCCESS;
    default: not_emulated("cuPointerGetAttribute of %d", (int)attribute);
  }
}

/* The attributes of an address range, which is a whole reservation, mapped or not, or else an allocation. */
static CUresult attribute_of_range(void *data, CUpointer_attribute attribute, CUdeviceptr ptr, bool mapped,
                                   const struct region *r) {
  char *base = mapped ? r->base : NULL;
  size_t bytes = mapped ? r->bytes : 0;
  if (!reservation_find((void *)(uintptr_t)ptr, &base, &bytes) && !mapped) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) *(unsigned int *)data = mapped;
  else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *(size_t *)data = bytes;
  else *(CUdeviceptr *)data = (CUdeviceptr)(uintptr_t)base;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuPointerGetAttribute, 4000)
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  DRIVER_ENTER(cuPointerGetAttribute);
  struct region r;
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  bool mapped = region_find((void *)(uintptr_t)ptr, &r);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return attribute_of_range(data, attribute, ptr, mapped, &r);
    default: return mapped ? attribute_of_memory(data, attribute, ptr, &r) : CUDA_ERROR_INVALID_VALUE;
  }
}
