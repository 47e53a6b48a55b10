/* Allocations that have a handle but no address until they are mapped: what cuMemCreate makes. */
#ifndef NCCL4J_STANDIN_PHYSICAL_H
#define NCCL4J_STANDIN_PHYSICAL_H

#include "cudart/memory.h"
#include "driver.h"

#include <sys/types.h>

/* Exists while it has handles or mappings, whose numbers regions_lock guards. */
struct physical {
  struct nccl4j_standin_object object;
  int handles, mappings;
  int memfd;
  ino_t inode;
  size_t bytes;
  bool imported; /* from another process, which accounts for the memory */
  CUmemAllocationProp properties;
  struct physical *next; /* of all, under regions_lock */
};

/* Returns the allocation of a handle with a reference for the caller, NULL if it is not a valid handle. */
struct physical *physical_get(CUmemGenericAllocationHandle handle);
/* Changes the number of handles or mappings; without either, the allocation ends. The caller must have a reference, or
 * one of the handles or mappings. */
void physical_add(struct physical *p, int handles, int mappings);

/* Returns the granularity of sizes and addresses in this place. */
size_t granularity_of(CUmemLocationType place);
bool host_location(CUmemLocationType place);

/* Stores the reservation that contains the pointer; false, with the results unchanged, if there is none. */
bool reservation_find(const void *pointer, char **base, size_t *bytes);

#endif
