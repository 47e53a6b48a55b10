/* The ranges of memory that CUDA knows, and the descriptors behind them: shared by the files about memory. */
#ifndef NCCL4J_STANDIN_MEMORY_H
#define NCCL4J_STANDIN_MEMORY_H

#include "cudart.h"

enum origin {
  BY_MALLOC,
  BY_NCCL, /* ncclMemAlloc of the stand-in's NCCL */
  BY_HOST_ALLOC,
  BY_REGISTER,
  BY_POOL,
  BY_MAP, /* cuMemMap */
  BY_IPC  /* cudaIpcOpenMemHandle */
};

/* Who may use a mapping of cuMemMap: a bit for each device. */
struct access {
  uint64_t readers, writers;
  bool host_reads, host_writes;
};

struct region {
  char *base;
  size_t bytes;
  enum cudaMemoryType type;
  enum origin origin;
  int device;
  int memfd; /* the memory behind the range, if the range owns it; -1: none */
  uint64_t id; /* never used again, unlike the address */
  struct physical *physical; /* with BY_MAP, the allocation that is mapped */
  struct access access; /* with BY_MAP */
};

/* Guards the table, and with it the state of physical allocations and reservations. */
extern pthread_mutex_t regions_lock;

/* These need regions_lock. A returned pointer is valid until the table changes. */
struct region *region_at(const void *pointer);
struct region *region_from(const void *pointer); /* the first one that ends above the pointer, NULL for none */
bool region_overlaps(const void *pointer, size_t bytes);
void region_insert(struct region r);
void region_remove(struct region *r);

/* Copies the region that contains the pointer; false if there is none. */
bool region_find(const void *pointer, struct region *found);

/* Counts device memory against the capacity of a device (bytes may be negative); false if there is not enough. */
bool memory_charge(int device, int64_t bytes);

/* Allocates the region's bytes on its device, and releases them; does not wait for the work of any stream. */
cudaError_t memory_allocate(void **pointer, struct region r);
cudaError_t memory_release(void *pointer);

/* ---- memory behind a descriptor ---- */

/* Returns the descriptor of new memory, all zero, whose name says its place; a negative device: host memory. A failure
 * returns -1. */
int memfd_new(size_t bytes, int device);
/* Reads the place of memory of this or another process; false if the descriptor is not memory of the emulation. */
bool memfd_describe(int memfd, size_t *bytes, int *device);
/* Maps all of the memory; NULL if that fails. */
void *memfd_map(int memfd, size_t bytes);
size_t memory_page(void);
size_t round_up(size_t bytes, size_t unit);

/* Makes memory zero. Whole pages of large ranges are returned to the system, which is faster than writing them. */
void memory_zero(void *pointer, size_t bytes);

/* Unmaps memory, and closes its descriptor unless that is -1, when everything that is pending in any stream is
 * complete: work that runs may still use it. */
void unmap_later(void *base, size_t bytes, int memfd);

#endif
