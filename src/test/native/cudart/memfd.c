/*
 * Memory behind a descriptor: a memfd, which processes can share. Its name, which every process that holds the
 * descriptor can read, says on which device the memory is, as CUDA's own descriptors do.
 */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_NAME "nccl4j-device-"
#define HOST_NAME "nccl4j-host"
#define LARGE (1 << 20)

/* Every allocation needs a descriptor, and NCCL makes thousands; the default limit is often 1024. */
__attribute__((constructor)) static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

size_t memory_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }
size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

int memfd_new(size_t bytes, int device) {
  char name[32];
  if (device < 0) snprintf(name, sizeof name, HOST_NAME);
  else snprintf(name, sizeof name, DEVICE_NAME "%d", device);
  int memfd = memfd_create(name, MFD_CLOEXEC);
  if (memfd < 0 && errno == EMFILE)
    fprintf(stderr, "nccl4j emulation: no descriptor is left for memory; raise the limit (ulimit -n)\n");
  if (memfd < 0) return -1;
  if (ftruncate(memfd, (off_t)round_up(bytes, memory_page())) == 0) return memfd;
  close(memfd);
  return -1;
}

bool memfd_describe(int memfd, size_t *bytes, int *device) {
  char path[64], name[64];
  struct stat status;
  snprintf(path, sizeof path, "/proc/self/fd/%d", memfd);
  ssize_t length = readlink(path, name, sizeof name - 1);
  if (length < 0 || fstat(memfd, &status) != 0) return false;
  name[length] = 0;
  *bytes = (size_t)status.st_size;
  *device = -1;
  return sscanf(name, "/memfd:" DEVICE_NAME "%d", device) == 1 || strncmp(name, "/memfd:" HOST_NAME, 18) == 0;
}

void *memfd_map(int memfd, size_t bytes) {
  void *base = mmap(NULL, round_up(bytes, memory_page()), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  return base == MAP_FAILED ? NULL : base;
}

/* Whether the whole range is memory behind a descriptor, whose pages the system can take back. */
static bool behind_descriptor(const char *pointer, size_t bytes) {
  struct region r;
  if (!region_find(pointer, &r) || (r.memfd < 0 && !r.physical)) return false;
  return bytes <= r.bytes - (size_t)(pointer - r.base);
}

void memory_zero(void *pointer, size_t bytes) {
  char *start = pointer, *end = start + bytes;
  if (bytes < LARGE || !behind_descriptor(start, bytes)) {
    memset(start, 0, bytes);
    return;
  }
  char *first = (char *)round_up((uintptr_t)start, memory_page());
  char *last = (char *)((uintptr_t)end / memory_page() * memory_page());
  memset(start, 0, (size_t)(first - start));
  if (madvise(first, (size_t)(last - first), MADV_REMOVE) != 0) memset(first, 0, (size_t)(last - first));
  memset(last, 0, (size_t)(end - last));
}

struct unmapping {
  void *base;
  size_t bytes;
  int memfd;
};

static void unmap_now(void *argument) {
  struct unmapping *u = argument;
  munmap(u->base, round_up(u->bytes, memory_page()));
  if (u->memfd >= 0) close(u->memfd);
  free(u);
}

void unmap_later(void *base, size_t bytes, int memfd) {
  struct unmapping *u = malloc(sizeof *u);
  *u = (struct unmapping){base, bytes, memfd};
  streams_after_pending(unmap_now, u);
}
