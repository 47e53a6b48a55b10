/* Tests of devices, contexts, memory and entry points; see README.md. */
#include "standin.h"

#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
#define OK(call) CHECK((call) == 0)

static void *entry(const char *name, unsigned int version) {
  void *function = NULL;
  enum cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &status));
  CHECK((status == cudaDriverEntryPointSuccess) == (function != NULL));
  return function;
}

/* Runs `body` in a child process; returns what the child wrote to stderr and stores its status. */
static char *run_child(void (*body)(void), int *status) {
  static char text[4096];
  int pipes[2];
  OK(pipe(pipes));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(pipes[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(pipes[0], text + length, sizeof text - 1 - length)) > 0;) length += (size_t)n;
  text[length] = 0;
  close(pipes[0]);
  CHECK(waitpid(child, status, 0) == child);
  return text;
}

static void call_missing_function(void) {
  int (*missing)(int) = (int (*)(int))entry("cuNobodyEmulatesThis", 13000);
  missing(7);
}

static void entry_points(void) {
  CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
      (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))entry("cuGetProcAddress",
                                                                                                   12000);
  CHECK(get != NULL);
  void *function;
  CUdriverProcAddressQueryResult result;
  OK(get("cuGetProcAddress", &function, 12000, 0, &result));
  CHECK(function == (void *)get && result == CU_GET_PROC_ADDRESS_SUCCESS);
  OK(get("cuGetProcAddress", &function, 11000, 0, &result));
  CHECK(function == NULL && result == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  OK(get("someOtherFunction", &function, 13000, 0, &result));
  CHECK(function == NULL && result == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(entry("cuMissingOne", 13000) != entry("cuMissingTwo", 13000));
  CHECK(entry("cuMissingOne", 13000) == entry("cuMissingOne", 12000));
  int status;
  const char *text = run_child(call_missing_function, &status);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK(strcmp(text, "nccl4j emulation: cuNobodyEmulatesThis is not emulated\n") == 0);

  OK(nccl4j_standin_fail("cuGetProcAddress", CUDA_ERROR_UNKNOWN, 1));
  CHECK(get("cuGetProcAddress", &function, 12000, 0, NULL) == CUDA_ERROR_UNKNOWN);
  OK(get("cuGetProcAddress", &function, 12000, 0, NULL));
}

/* ---- memory ---- */

#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)

/* The driver's functions under test, found as programs find them. */
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

static void find_functions(void) {
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

static CUdeviceptr address(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

static unsigned int unsigned_attribute(const void *pointer, CUpointer_attribute attribute) {
  unsigned int value = 77;
  OK(cu.attribute(&value, attribute, address(pointer)));
  return value;
}

static size_t free_memory(int device) {
  size_t left, total;
  OK(cudaSetDevice(device));
  OK(cudaMemGetInfo(&left, &total));
  return left;
}

static void allocations(void) {
  size_t before = free_memory(3);
  char *memory, *pinned;
  OK(cudaMalloc((void **)&memory, 10000));
  OK(cudaHostAlloc((void **)&pinned, 100, cudaHostAllocMapped));
  CHECK(free_memory(3) == before - 10000);
  CHECK(memory[0] != 0 && memory[9999] != 0); /* fresh memory of cudaMalloc is not zero */
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(cu.range(&base, &bytes, address(memory) + 9999));
  CHECK(base == address(memory) && bytes == 10000);
  OK(cu.range(NULL, &bytes, address(pinned)));
  OK(cu.range(&base, NULL, address(pinned) + 1));
  CHECK(base == address(pinned) && bytes == 100);
  CHECK(cu.range(&base, &bytes, address(memory) + 10000) == CUDA_ERROR_NOT_FOUND);
  CHECK(cu.range(NULL, NULL, address(&base)) == CUDA_ERROR_NOT_FOUND);

  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
  CHECK(unsigned_attribute(pinned, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == 3);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 1);
  CHECK(unsigned_attribute(pinned, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) == 0);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_MAPPED) == 1);
  unsigned long long types = 77, first, second;
  OK(cu.attribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address(memory)));
  CHECK(types == 0);
  OK(cu.attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address(memory) + 5));
  CHECK(bytes == 10000);
  void *pointer;
  OK(cu.attribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address(pinned) + 4));
  CHECK(pointer == pinned + 4);
  CHECK(cu.attribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address(memory)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.attribute(&types, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(&types)) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.attribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(memory)));

  CHECK(cudaFree(memory + 1) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(memory) == cudaErrorInvalidValue);
  OK(cudaFree(memory));
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  CHECK(free_memory(3) == before);
  OK(cudaMalloc((void **)&memory, 10000));
  OK(cu.attribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(memory)));
  CHECK(first != second);
  OK(cudaFree(memory));
  OK(cudaFreeHost(pinned));
  CHECK(cudaMalloc((void **)&memory, before + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

/* Setting large ranges to zero takes another way; the bytes next to them must stay. */
static void zeroing(void) {
  char *memory;
  OK(cudaMalloc((void **)&memory, 4 * MIB));
  OK(cudaMemset(memory, 1, 4 * MIB));
  OK(cudaMemset(memory + 100, 0, 3 * MIB));
  for (size_t i = 0; i < 4 * MIB; i++) CHECK(memory[i] == (i < 100 || i >= 100 + 3 * MIB));
  OK(cudaFree(memory));
}

static void pools(void) {
  size_t before = free_memory(2);
  cudaMemPool_t pool;
  struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                        .handleTypes = cudaMemHandleTypeNone,
                                        .location = {.type = cudaMemLocationTypeDevice, .id = 2}};
  OK(cudaMemPoolCreate(&pool, &properties));
  CHECK(nccl4j_standin_live("pool") == 1);
  uint64_t threshold = ~UINT64_C(0);
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &threshold) == cudaErrorNotSupported);
  OK(cudaSetDevice(1));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  char *memory;
  OK(cudaMallocFromPoolAsync((void **)&memory, 4096, pool, stream));
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == 2);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0);
  CHECK(free_memory(2) == before - 4096);
  OK(cudaMemsetAsync(memory, 5, 4096, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(memory[4095] == 5);
  OK(cudaFreeAsync(memory, stream));
  CHECK(cudaFreeAsync(memory, stream) == cudaErrorInvalidValue);
  OK(cudaMallocAsync((void **)&memory, 4096, stream));
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == 1);
  OK(cudaFree(memory));
  OK(cudaMemPoolDestroy(pool));
  CHECK(cudaMemPoolDestroy(pool) == cudaErrorInvalidValue);
  CHECK(cudaMallocFromPoolAsync((void **)&memory, 4096, pool, stream) == cudaErrorInvalidValue);
  OK(cudaStreamDestroy(stream));
  properties.location.id = 64;
  CHECK(cudaMemPoolCreate(&pool, &properties) == cudaErrorInvalidDevice);
  CHECK(free_memory(2) == before);
}

/* ---- virtual memory ---- */

static CUmemAllocationProp on_device(int device) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUmemAccessDesc access_of(CUmemLocationType type, int id, CUmemAccess_flags flags) {
  return (CUmemAccessDesc){.location = {type, id}, .flags = flags};
}

static CUresult let_use(CUdeviceptr base, size_t bytes, int device) {
  CUmemAccessDesc access = access_of(CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return cu.access(base, bytes, &access, 1);
}

static char *touched;
static void read_it(void) { _exit(*(volatile char *)touched == 0 ? 0 : 1); }
static void write_it(void) { *(volatile char *)touched = 1; }

/* Whether a process can do this without ending abnormally. */
static bool survives(void (*body)(void), CUdeviceptr where) {
  int status;
  touched = (char *)(uintptr_t)where;
  run_child(body, &status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void virtual_memory(void) {
  size_t before = free_memory(1), granularity = 0;
  CUmemAllocationProp properties = on_device(1), found;
  OK(cu.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK(granularity == GRANULE);
  CUmemGenericAllocationHandle handle, again;
  OK(cu.create(&handle, 2 * GRANULE, &properties, 0));
  CHECK(free_memory(1) == before - 2 * GRANULE && nccl4j_standin_live("physical") == 1);
  OK(cu.properties(&found, handle));
  CHECK(found.location.id == 1 && found.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

  CUdeviceptr base;
  OK(cu.reserve(&base, 8 * GRANULE, 16 * MIB, 0, 0));
  CHECK(base % (16 * MIB) == 0 && nccl4j_standin_live("reservation") == 1);
  unsigned int mapped = 77;
  OK(cu.attribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, base));
  CHECK(mapped == 0 && cu.range(NULL, NULL, base) == CUDA_ERROR_NOT_FOUND);
  CHECK(let_use(base, GRANULE, 1) == CUDA_ERROR_INVALID_VALUE); /* nothing is mapped */

  CHECK(cu.map(base + 4096, GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.map(base, 3 * GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.map(base + 7 * GRANULE, 2 * GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.map(base, GRANULE, GRANULE, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.map(base, 2 * GRANULE, 0, handle, 0));
  CHECK(cu.map(base + GRANULE, GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE); /* already mapped */
  OK(cu.map(base + 2 * GRANULE, GRANULE, 0, handle, 0));
  CHECK(nccl4j_standin_live("mapping") == 2);

  volatile char *bytes_at = (char *)(uintptr_t)base; /* volatile: two addresses of the same memory */
  char *memory = (char *)(uintptr_t)base;
  CHECK(!nccl4j_standin_reachable(memory, 1) && !survives(read_it, base));
  CHECK(let_use(base, GRANULE, 1) == CUDA_ERROR_INVALID_VALUE); /* half a mapping */
  CHECK(let_use(base, 4 * GRANULE, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(let_use(base, 3 * GRANULE, 64) == CUDA_ERROR_INVALID_DEVICE);
  CUmemAccessDesc by_host = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(cu.access(base, 2 * GRANULE, &by_host, 1) == CUDA_ERROR_INVALID_VALUE); /* device memory */
  OK(let_use(base, 3 * GRANULE, 1));
  CHECK(survives(read_it, base)); /* and it is zero */
  for (size_t i = 0; i < 2 * GRANULE; i += 4096) CHECK(memory[i] == 0);
  bytes_at[5] = 42;
  CHECK(bytes_at[2 * GRANULE + 5] == 42);
  CHECK(nccl4j_standin_reachable(memory, 3 * GRANULE) && !nccl4j_standin_reachable(memory, 3 * GRANULE + 1));
  CHECK(nccl4j_standin_memory_device(memory) == 1);

  CUmemAccessDesc reader = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cu.access(base + 2 * GRANULE, GRANULE, &reader, 1));
  CHECK(survives(read_it, base + 2 * GRANULE) && !survives(write_it, base + 2 * GRANULE));
  OK(let_use(base + 2 * GRANULE, GRANULE, 0)); /* another device */
  CHECK(survives(write_it, base + 2 * GRANULE));

  size_t bytes;
  CUdeviceptr start;
  OK(cu.range(&start, &bytes, base + 3));
  CHECK(start == base && bytes == 2 * GRANULE);
  OK(cu.attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + 3));
  CHECK(bytes == 8 * GRANULE);
  OK(cu.attribute(&mapped, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base));
  CHECK(mapped == 0);
  unsigned long long types;
  OK(cu.attribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, base));
  CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK(unsigned_attribute(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == 1);

  /* As NCCL frees: the mapping keeps the allocation, a retained handle has the same value. */
  OK(cu.release(handle));
  CHECK(cu.properties(&found, handle) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.retain(&again, memory + 77));
  CHECK(again == handle);
  CHECK(cu.retain(&again, &again) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.unreserve(base, 8 * GRANULE) == CUDA_ERROR_INVALID_VALUE); /* still mapped */
  CHECK(cu.unmap(base, GRANULE) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.unmap(base + 64 * GRANULE, GRANULE) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.unmap(base, 2 * GRANULE));
  CHECK(nccl4j_standin_live("physical") == 1 && cu.range(NULL, NULL, base) == CUDA_ERROR_NOT_FOUND);
  CHECK(!survives(read_it, base));
  OK(cu.release(handle));
  CHECK(free_memory(1) == before - 2 * GRANULE); /* one mapping is left */
  OK(cu.unmap(base, 8 * GRANULE));
  CHECK(free_memory(1) == before && nccl4j_standin_live("physical") == 0);
  CHECK(cu.release(handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.unreserve(base, 4 * GRANULE) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.unreserve(base, 8 * GRANULE));
  CHECK(cu.unreserve(base, 8 * GRANULE) == CUDA_ERROR_INVALID_VALUE);
  CHECK(nccl4j_standin_live("mapping") == 0 && nccl4j_standin_live("reservation") == 0);
}

static void refused_allocations(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp properties = on_device(0);
  CHECK(cu.create(&handle, GRANULE + 4096, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.create(&handle, 0, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.create(&handle, free_memory(0) + GRANULE, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  properties.location.id = 64;
  CHECK(cu.create(&handle, GRANULE, &properties, 0) == CUDA_ERROR_INVALID_DEVICE);
  properties = on_device(0);
  properties.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(cu.create(&handle, GRANULE, &properties, 0) == CUDA_ERROR_NOT_SUPPORTED);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  OK(cu.create(&handle, GRANULE, &properties, 0));
  int descriptor = -1;
  CHECK(cu.export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.release(handle));
  CHECK(cu.import(&handle, (void *)(intptr_t)STDIN_FILENO, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.import(&handle, (void *)(intptr_t)-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr base;
  CHECK(cu.reserve(&base, 100, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.reserve(&base, GRANULE, 3 * MIB, 0, 0) == CUDA_ERROR_INVALID_VALUE);
}

/* As NCCL allocates host memory that other processes share. */
static void host_memory(void) {
  size_t granularity = 0;
  CUmemAllocationProp properties = on_device(0);
  properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  OK(cu.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle handle, imported;
  CUdeviceptr base;
  int descriptor;
  OK(cu.create(&handle, granularity, &properties, 0));
  OK(cu.reserve(&base, granularity, granularity, 0, 0));
  OK(cu.map(base, granularity, 0, handle, 0));
  CUmemAccessDesc both[] = {access_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                            access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  OK(cu.access(base, granularity, both, 2));
  CHECK(survives(write_it, base));
  CHECK(unsigned_attribute((void *)(uintptr_t)base, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST);
  struct cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)base));
  CHECK(attributes.type == cudaMemoryTypeHost && attributes.devicePointer == (void *)(uintptr_t)base);
  OK(cu.export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cu.import(&imported, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(close(descriptor));
  CUmemAllocationProp found;
  OK(cu.properties(&found, imported));
  CHECK(found.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
  OK(cu.release(imported));
  OK(cu.unmap(base, granularity));
  OK(cu.release(handle));
  OK(cu.unreserve(base, granularity));
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(cu.create(&handle, granularity, &properties, 0) == CUDA_ERROR_INVALID_VALUE); /* cannot be exported */
}

/* While work is pending, memory stays in place after it is unmapped, and its range can be mapped again at once. */
static void hold_stream(void *released) {
  while (!atomic_load((atomic_bool *)released)) usleep(1000);
}

static void unmapping_under_work(void) {
  CUmemAllocationProp properties = on_device(0);
  CUmemGenericAllocationHandle first, second;
  CUdeviceptr base, other;
  OK(cu.create(&first, GRANULE, &properties, 0));
  OK(cu.create(&second, GRANULE, &properties, 0));
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  OK(cu.reserve(&other, GRANULE, 0, 0, 0));
  OK(cu.map(base, GRANULE, 0, first, 0));
  OK(cu.map(other, GRANULE, 0, first, 0));
  OK(let_use(base, GRANULE, 0));
  OK(let_use(other, GRANULE, 0));
  atomic_bool released = false;
  cudaStream_t stream;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&stream));
  OK(cudaLaunchHostFunc(stream, hold_stream, &released));
  OK(cu.unmap(base, GRANULE));
  OK(cu.unmap(other, GRANULE));
  CHECK(survives(read_it, base));
  OK(cu.map(base, GRANULE, 0, second, 0));
  OK(let_use(base, GRANULE, 0));
  OK(cu.unreserve(other, GRANULE));
  CHECK(survives(read_it, other));
  atomic_store(&released, true);
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamDestroy(stream));
  for (int i = 0; i < 1000 && nccl4j_standin_live("thread") > 0; i++) usleep(1000);
  CHECK(survives(read_it, base) && !survives(read_it, other));
  OK(cu.unmap(base, GRANULE));
  OK(cu.unreserve(base, GRANULE));
  OK(cu.release(first));
  OK(cu.release(second));
}

/* ---- other processes ---- */

/* Starts this program again with a role; returns its process and this end of a connection. */
static pid_t start_peer(const char *role, int *connection) {
  int ends[2];
  char end[16];
  OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  snprintf(end, sizeof end, "%d", ends[1]);
  pid_t peer = fork();
  CHECK(peer >= 0);
  if (peer == 0) {
    fcntl(ends[1], F_SETFD, 0);
    execl("/proc/self/exe", "selftest_memory", role, end, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  *connection = ends[0];
  return peer;
}

static void end_peer(pid_t peer, int connection) {
  int status;
  CHECK(waitpid(peer, &status, 0) == peer);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(connection);
}

static void tell(int connection, const void *data, size_t bytes) {
  CHECK(write(connection, data, bytes) == (ssize_t)bytes);
}

static void hear(int connection, void *data, size_t bytes) {
  CHECK(recv(connection, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static void tell_descriptor(int connection, int descriptor) {
  char byte = 0;
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof descriptor)];
  } control = {.header = {.cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
  CHECK(sendmsg(connection, &message, 0) == 1);
}

static int hear_descriptor(int connection) {
  char byte;
  int descriptor;
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof descriptor)];
  } control;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  CHECK(recvmsg(connection, &message, 0) == 1 && message.msg_controllen >= sizeof control.header);
  memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
  return descriptor;
}

static void peer_imports(int connection) {
  int descriptor = hear_descriptor(connection);
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp found;
  CUdeviceptr base;
  OK(cudaSetDevice(0));
  size_t before = free_memory(2);
  OK(cu.import(&handle, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(close(descriptor));
  CHECK(free_memory(2) == before); /* charged to the process that created it */
  OK(cu.properties(&found, handle));
  CHECK(found.location.type == CU_MEM_LOCATION_TYPE_DEVICE && found.location.id == 2);
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  CHECK(cu.map(base, 2 * GRANULE, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cu.map(base, GRANULE, 0, handle, 0));
  OK(let_use(base, GRANULE, 0));
  char *memory = (char *)(uintptr_t)base;
  CHECK(memory[0] == 11);
  memory[GRANULE - 1] = 22;
  OK(cu.unmap(base, GRANULE));
  OK(cu.release(handle));
  OK(cu.unreserve(base, GRANULE));
}

static void shared_descriptors(void) {
  CUmemAllocationProp properties = on_device(2);
  CUmemGenericAllocationHandle handle;
  CUdeviceptr base;
  int connection, descriptor;
  OK(cu.create(&handle, GRANULE, &properties, 0));
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  OK(cu.map(base, GRANULE, 0, handle, 0));
  OK(let_use(base, GRANULE, 2));
  char *memory = (char *)(uintptr_t)base;
  memory[0] = 11;
  pid_t peer = start_peer("imports", &connection);
  OK(cu.export(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  tell_descriptor(connection, descriptor);
  OK(close(descriptor));
  end_peer(peer, connection);
  CHECK(memory[GRANULE - 1] == 22);
  OK(cu.unmap(base, GRANULE));
  OK(cu.release(handle));
  OK(cu.unreserve(base, GRANULE));
}

/* Opens the memory of the other process, then exports its own and ends with that handle as its last word. */
static void peer_opens(int connection) {
  cudaIpcMemHandle_t theirs, mine;
  char *memory, *again, *own;
  hear(connection, &theirs, sizeof theirs);
  OK(cudaIpcOpenMemHandle((void **)&memory, theirs, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle((void **)&again, theirs, cudaIpcMemLazyEnablePeerAccess));
  CHECK(memory == again && nccl4j_standin_live("mapping") == 1);
  CHECK(memory[0] == 33 && nccl4j_standin_memory_device(memory) == 5);
  CHECK(nccl4j_standin_reachable(memory, 5000) && !nccl4j_standin_reachable(memory, 5001));
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  CHECK(cudaIpcGetMemHandle(&mine, memory) == cudaErrorInvalidValue);
  OK(cudaIpcCloseMemHandle(memory));
  memory[4999] = 44; /* still open once */
  OK(cudaIpcCloseMemHandle(memory));
  CHECK(cudaIpcCloseMemHandle(memory) == cudaErrorInvalidValue);
  CHECK(nccl4j_standin_live("mapping") == 0);
  OK(cudaMalloc((void **)&own, 100));
  OK(cudaIpcGetMemHandle(&mine, own));
  tell(connection, &mine, sizeof mine);
}

static void shared_by_ipc(void) {
  char *memory, *other;
  cudaIpcMemHandle_t handle, theirs;
  int connection;
  OK(cudaSetDevice(5));
  OK(cudaMalloc((void **)&memory, 5000));
  memory[0] = 33;
  OK(cudaIpcGetMemHandle(&handle, memory));
  CHECK(cudaIpcOpenMemHandle((void **)&other, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
  pid_t peer = start_peer("opens", &connection);
  tell(connection, &handle, sizeof handle);
  hear(connection, &theirs, sizeof theirs);
  end_peer(peer, connection);
  CHECK(memory[4999] == 44);
  CHECK(cudaIpcOpenMemHandle((void **)&other, theirs, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorMapBufferObjectFailed); /* its process has ended */
  OK(cudaFree(memory));
  CHECK(cudaIpcGetMemHandle(&handle, memory) == cudaErrorInvalidValue);
  memset(&handle, 7, sizeof handle);
  CHECK(cudaIpcOpenMemHandle((void **)&other, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorInvalidResourceHandle);
}

/* Opens memory that has been freed by then, and whose descriptor number may stand for something else. */
static void peer_comes_late(int connection) {
  cudaIpcMemHandle_t handle;
  void *memory;
  hear(connection, &handle, sizeof handle);
  CHECK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorMapBufferObjectFailed);
}

static void freed_before_it_is_opened(void) {
  void *memory, *other;
  cudaIpcMemHandle_t handle;
  int connection;
  OK(cudaMalloc(&memory, 5000));
  OK(cudaIpcGetMemHandle(&handle, memory));
  OK(cudaFree(memory));
  OK(cudaMalloc(&other, 5000)); /* takes the same descriptor */
  pid_t peer = start_peer("late", &connection);
  tell(connection, &handle, sizeof handle);
  end_peer(peer, connection);
  OK(cudaFree(other));
}

static int peer(const char *role, int connection) {
  if (strcmp(role, "imports") == 0) peer_imports(connection);
  else if (strcmp(role, "opens") == 0) peer_opens(connection);
  else if (strcmp(role, "late") == 0) peer_comes_late(connection);
  else return 2;
  return 0;
}

static void nothing_left(void) {
  static const char *const kinds[] = {"memory", "pinned", "stream", "pool", "physical", "reservation", "mapping"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    if (nccl4j_standin_live(kinds[k]) != 0) fprintf(stderr, "live: %s\n", kinds[k]);
    CHECK(nccl4j_standin_live(kinds[k]) == 0);
  }
}

int main(int count, char **arguments) {
  find_functions();
  if (count == 3) return peer(arguments[1], atoi(arguments[2]));
  entry_points();
  allocations();
  zeroing();
  pools();
  virtual_memory();
  refused_allocations();
  host_memory();
  unmapping_under_work();
  shared_descriptors();
  shared_by_ipc();
  freed_before_it_is_opened();
  nothing_left();
  printf("selftest_memory: ok\n");
  return 0;
}
