/* What the self-tests of the emulation share. */
#ifndef NCCL4J_SELFTEST_DRIVER_H
#define NCCL4J_SELFTEST_DRIVER_H

#include "selftest.h"

#include <cuda.h>

static inline void *entry(const char *name, unsigned int version) {
  void *function = NULL;
  enum cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status));
  CHECK((status == cudaDriverEntryPointSuccess) == (function != NULL));
  return function;
}

/* ---- memory ---- */

#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)

/* The driver's functions of memory, found as programs find them. */
static struct {
  __typeof__(cuMemGetAllocationGranularity) *granularity;
  __typeof__(cuMemCreate) *create;
  __typeof__(cuMemRelease) *release;
  __typeof__(cuMemRetainAllocationHandle) *retain;
  __typeof__(cuMemGetAllocationPropertiesFromHandle) *properties;
  __typeof__(cuMemExportToShareableHandle) *export;
  __typeof__(cuMemImportFromShareableHandle) *import;
  __typeof__(cuMemAddressReserve) *reserve;
  __typeof__(cuMemAddressFree) *unreserve;
  __typeof__(cuMemMap) *map;
  __typeof__(cuMemUnmap) *unmap;
  __typeof__(cuMemSetAccess) *access;
  __typeof__(cuMemGetAddressRange) *range;
  __typeof__(cuPointerGetAttribute) *attribute;
} cu;

static inline void find_memory_functions(void) {
  cu.granularity = entry("cuMemGetAllocationGranularity", 10020);
  cu.create = entry("cuMemCreate", 10020);
  cu.release = entry("cuMemRelease", 10020);
  cu.retain = entry("cuMemRetainAllocationHandle", 11000);
  cu.properties = entry("cuMemGetAllocationPropertiesFromHandle", 10020);
  cu.export = entry("cuMemExportToShareableHandle", 10020);
  cu.import = entry("cuMemImportFromShareableHandle", 10020);
  cu.reserve = entry("cuMemAddressReserve", 10020);
  cu.unreserve = entry("cuMemAddressFree", 10020);
  cu.map = entry("cuMemMap", 10020);
  cu.unmap = entry("cuMemUnmap", 10020);
  cu.access = entry("cuMemSetAccess", 10020);
  cu.range = entry("cuMemGetAddressRange", 3020);
  cu.attribute = entry("cuPointerGetAttribute", 4000);
}

static inline CUdeviceptr address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

static inline unsigned int unsigned_attribute(const void *pointer, CUpointer_attribute attribute) {
  unsigned int value = 77;
  OK(cu.attribute(&value, attribute, address(pointer)));
  return value;
}

static inline size_t free_memory(int device) {
  size_t left, total;
  OK(cudaSetDevice(device));
  OK(cudaMemGetInfo(&left, &total));
  return left;
}

static inline CUmemAllocationProp on_device(int device) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static inline CUmemAccessDesc access_of(CUmemLocationType type, int id, CUmemAccess_flags flags) {
  return (CUmemAccessDesc){.location = {type, id}, .flags = flags};
}

static inline CUresult let_use(CUdeviceptr base, size_t bytes, int device) {
  CUmemAccessDesc access = access_of(CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return cu.access(base, bytes, &access, 1);
}

static inline void nothing_left(void) {
  static const char *const kinds[] = {"memory", "pinned", "stream", "pool", "physical", "reservation", "mapping"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (nccl4j_standin_live(kinds[k]) != 0) fprintf(stderr, "live: %s\n", kinds[k]);
    CHECK(nccl4j_standin_live(kinds[k]) == 0);
  }
}

#endif
