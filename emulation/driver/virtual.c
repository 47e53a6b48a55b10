/*
 * Virtual memory: address ranges that are reserved, and physical allocations that are mapped into them.
 *
 * A reserved range has no access; a mapping has none until cuMemSetAccess gives it. Real devices have page tables of
 * their own, these share the process's: memory that any one device may use, all may use. cuMemUnmap does not wait for
 * the work of streams; while work is pending anywhere, its bytes stay in place, so that a kernel that still runs does
 * not end the process. If the range is mapped again meanwhile, such a kernel finds the new memory.
 */
#include "physical.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Has a reference for the list, and one for each unmapping under way. */
struct reservation {
  struct nccl4j_standin_object object;
  char *base;
  size_t bytes;
  struct reservation *next;
};
static struct reservation *reservations; /* under regions_lock */

/* A range whose bytes stay until the work is complete that was pending when it was unmapped. */
struct unmapping {
  struct reservation *reservation;
  char *base, *end;
  struct unmapping *next;
};
static struct unmapping *unmappings; /* under regions_lock */

static char *pointer_to(CUdeviceptr address) { return (char *)(uintptr_t)address; }

static void *reserve(void *at, size_t bytes, int fixed) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

/* ---- reservations ---- */

static void reservation_destroy(void *object) {
  struct reservation *v = object;
  munmap(v->base, v->bytes);
  free(v);
}

DRIVER_ENTRY(cuMemAddressReserve, 10020)
CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  (void)addr; /* a hint */
  DRIVER_ENTER(cuMemAddressReserve);
  if (!ptr || size == 0 || size % memory_page() != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment & (alignment - 1)) return CUDA_ERROR_INVALID_VALUE;
  size_t unit = granularity_of(CU_MEM_LOCATION_TYPE_DEVICE);
  if (alignment < unit) alignment = unit; /* the default, so that device memory can be mapped anywhere */
  char *whole = reserve(NULL, size + alignment, 0);
  if (whole == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  char *base = (char *)round_up((uintptr_t)whole, alignment), *end = base + size, *whole_end = whole + size + alignment;
  if (base > whole) munmap(whole, (size_t)(base - whole));
  if (whole_end > end) munmap(end, (size_t)(whole_end - end));
  struct reservation *v = calloc(1, sizeof *v);
  v->base = base;
  v->bytes = size;
  object_add(v, KIND_RESERVATION, reservation_destroy);
  pthread_mutex_lock(&regions_lock);
  v->next = reservations;
  reservations = v;
  pthread_mutex_unlock(&regions_lock);
  *ptr = (CUdeviceptr)(uintptr_t)base;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuMemAddressFree, 10020)
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  DRIVER_ENTER(cuMemAddressFree);
  struct reservation *freed = NULL;
  pthread_mutex_lock(&regions_lock);
  for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
    struct reservation *v = *at;
    if (v->base != pointer_to(ptr)) continue;
    if (v->bytes != size || region_overlaps(v->base, size)) break; /* still mapped */
    *at = v->next;
    freed = v;
    break;
  }
  pthread_mutex_unlock(&regions_lock);
  if (!freed) return CUDA_ERROR_INVALID_VALUE;
  object_retire(freed, KIND_RESERVATION);
  object_put(freed);
  return CUDA_SUCCESS;
}

/* Returns the reservation that contains the range. Needs regions_lock. */
static struct reservation *reservation_of(const char *base, size_t bytes) {
  for (struct reservation *v = reservations; v; v = v->next)
    if (base >= v->base && bytes <= v->bytes && (size_t)(base - v->base) <= v->bytes - bytes) return v;
  return NULL;
}

bool reservation_find(const void *pointer, char **base, size_t *bytes) {
  pthread_mutex_lock(&regions_lock);
  const struct reservation *v = reservation_of(pointer, 1);
  if (v) {
    *base = v->base;
    *bytes = v->bytes;
  }
  pthread_mutex_unlock(&regions_lock);
  return v != NULL;
}

/* ---- mapping ---- */

/* Returns the next unmapping, after `u` or from the first one on, that overlaps the range. Needs regions_lock. */
static struct unmapping *unmapping_in(struct unmapping *u, const char *base, const char *end) {
  u = u ? u->next : unmappings;
  while (u && (u->end <= base || u->base >= end)) u = u->next;
  return u;
}

/* Needs regions_lock. */
static CUresult map(char *base, size_t bytes, struct physical *p) {
  if (!reservation_of(base, bytes) || region_overlaps(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  int access = unmapping_in(NULL, base, base + bytes) ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mmap(base, bytes, access, MAP_SHARED | MAP_FIXED, p->memfd, 0) == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  bool host = host_location(p->properties.location.type);
  int current = nccl4j_standin_current_device();
  region_insert((struct region){
      .base = base,
      .bytes = bytes,
      .type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice,
      .origin = BY_MAP,
      .device = host ? (current < 0 ? 0 : current) : p->properties.location.id,
      .memfd = -1,
      .physical = p,
  });
  p->mappings++;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuMemMap, 10020)
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  DRIVER_ENTER(cuMemMap);
  if (size == 0 || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct physical *p = physical_get(handle);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  size_t unit = granularity_of(p->properties.location.type);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (ptr % unit == 0 && size % unit == 0 && size <= p->bytes) {
    pthread_mutex_lock(&regions_lock);
    result = map(pointer_to(ptr), size, p);
    pthread_mutex_unlock(&regions_lock);
  }
  object_put(p);
  if (result == CUDA_SUCCESS) nccl4j_standin_count(KIND_MAPPING, 1);
  return result;
}

/* Whether the range, in a reservation, cuts no mapping; without holes, mappings must fill it. Needs regions_lock. */
static bool whole_mappings(const char *base, size_t bytes, bool holes) {
  const char *end = base + bytes, *at = base;
  for (struct region *r; (r = region_from(at)) && r->base < end; at = r->base + r->bytes) {
    if (r->base < base || r->bytes > (size_t)(end - r->base)) return false;
    if (!holes && r->base != at) return false;
  }
  return holes || at == end;
}

/* Takes away the bytes that are neither mapped again nor wait with an unmapping after `u`. Needs regions_lock. */
static void take_away(char *base, char *end, struct unmapping *u) {
  u = unmapping_in(u, base, end);
  if (u && base < u->base) take_away(base, u->base, u);
  if (u && u->end < end) take_away(u->end, end, u);
  if (u) return;
  while (base < end) {
    const struct region *r = region_from(base);
    char *stop = r && r->base < end ? r->base : end;
    if (base < stop) reserve(base, (size_t)(stop - base), MAP_FIXED);
    base = r ? r->base + r->bytes : end;
  }
}

static void unmap_now(void *argument) {
  struct unmapping *u = argument, **at = &unmappings;
  pthread_mutex_lock(&regions_lock);
  while (*at != u) at = &(*at)->next;
  *at = u->next;
  take_away(u->base, u->end, NULL);
  pthread_mutex_unlock(&regions_lock);
  object_put(u->reservation);
  free(u);
}

/* Removes the first mapping in the range; false if there is none. */
static bool unmap_first(struct reservation *v, const char *base, size_t bytes) {
  struct unmapping *u = NULL;
  struct physical *physical;
  pthread_mutex_lock(&regions_lock);
  struct region *r = region_from(base);
  if (r && r->base < base + bytes) {
    u = malloc(sizeof *u);
    *u = (struct unmapping){v, r->base, r->base + r->bytes, unmappings};
    unmappings = u;
    object_hold(v);
    physical = r->physical;
    region_remove(r);
  }
  pthread_mutex_unlock(&regions_lock);
  if (!u) return false;
  nccl4j_standin_count(KIND_MAPPING, -1);
  physical_add(physical, 0, -1);
  streams_after_pending(unmap_now, u);
  return true;
}

/* Parts of the range that are not mapped are no error: NCCL unmaps its whole reservation at the end. */
DRIVER_ENTRY(cuMemUnmap, 10020)
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  DRIVER_ENTER(cuMemUnmap);
  char *base = pointer_to(ptr);
  pthread_mutex_lock(&regions_lock);
  struct reservation *v = reservation_of(base, size);
  if (v && !whole_mappings(base, size, true)) v = NULL;
  if (v) object_hold(v);
  pthread_mutex_unlock(&regions_lock);
  if (!v || size == 0) return CUDA_ERROR_INVALID_VALUE;
  while (unmap_first(v, base, size)) continue;
  object_put(v);
  return CUDA_SUCCESS;
}

/* ---- access ---- */

static void set_bit(uint64_t *bits, int bit, bool on) {
  if (on) *bits |= UINT64_C(1) << bit;
  else *bits &= ~(UINT64_C(1) << bit);
}

static CUresult check_access(const CUmemAccessDesc *desc) {
  switch (desc->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return device_valid(desc->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return host_location(desc->location.type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void set_access(struct access *access, const CUmemAccessDesc *desc) {
  bool reads = desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE, writes = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (host_location(desc->location.type)) {
    access->host_reads = reads;
    access->host_writes = writes;
  } else {
    set_bit(&access->readers, desc->location.id, reads);
    set_bit(&access->writers, desc->location.id, writes);
  }
}

/* Needs regions_lock. */
static CUresult protect(struct region *r, const CUmemAccessDesc *desc) {
  if (host_location(desc->location.type) && r->type == cudaMemoryTypeDevice) return CUDA_ERROR_INVALID_VALUE;
  set_access(&r->access, desc);
  int reads = r->access.readers || r->access.host_reads ? PROT_READ : 0;
  int writes = r->access.writers || r->access.host_writes ? PROT_WRITE : 0;
  return mprotect(r->base, r->bytes, reads | writes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER_ENTRY(cuMemSetAccess, 10020)
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  DRIVER_ENTER(cuMemSetAccess);
  const char *base = pointer_to(ptr), *end = base + size;
  if (size == 0 || !desc || count == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) result = check_access(&desc[i]);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&regions_lock);
  if (!reservation_of(base, size) || !whole_mappings(base, size, false)) result = CUDA_ERROR_INVALID_VALUE;
  for (const char *at = base; at < end && result == CUDA_SUCCESS;) {
    struct region *r = region_at(at);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) result = protect(r, &desc[i]);
    at = r->base + r->bytes;
  }
  pthread_mutex_unlock(&regions_lock);
  return result;
}
