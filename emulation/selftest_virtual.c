/* Tests of virtual memory; see README.md. */
#include "selftest_driver.h"

/* Whether this process may read the byte ('r'), or write it ('w'), which would end it if it may not. */
static bool permits(char what, CUdeviceptr where) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  bool found = false;
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps)) {
    unsigned long long begin, end;
    char permissions[5];
    CHECK(sscanf(line, "%llx-%llx %4s", &begin, &end, permissions) == 3);
    if (where >= begin && where < end) found = strchr(permissions, what) != NULL;
  }
  fclose(maps);
  return found;
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
  CHECK(!nccl4j_standin_reachable(memory, 1) && !permits('r', base));
  CHECK(let_use(base, GRANULE, 1) == CUDA_ERROR_INVALID_VALUE); /* half a mapping */
  CHECK(let_use(base, 4 * GRANULE, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(let_use(base, 3 * GRANULE, 64) == CUDA_ERROR_INVALID_DEVICE);
  CUmemAccessDesc no_flags = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, (CUmemAccess_flags)2);
  CHECK(cu.access(base, 3 * GRANULE, &no_flags, 1) == CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc by_host = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(cu.access(base, 2 * GRANULE, &by_host, 1) == CUDA_ERROR_INVALID_VALUE); /* device memory */
  OK(let_use(base, 3 * GRANULE, 1));
  CHECK(permits('r', base)); /* and it is zero */
  for (size_t i = 0; i < 2 * GRANULE; i += 4096) CHECK(memory[i] == 0);
  bytes_at[5] = 42;
  CHECK(bytes_at[2 * GRANULE + 5] == 42);
  CHECK(nccl4j_standin_reachable(memory, 3 * GRANULE) && !nccl4j_standin_reachable(memory, 3 * GRANULE + 1));
  CHECK(nccl4j_standin_memory_device(memory) == 1);

  CUmemAccessDesc reader = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cu.access(base + 2 * GRANULE, GRANULE, &reader, 1));
  CHECK(permits('r', base + 2 * GRANULE) && !permits('w', base + 2 * GRANULE));
  OK(let_use(base + 2 * GRANULE, GRANULE, 0)); /* another device */
  CHECK(permits('w', base + 2 * GRANULE));
  CHECK(nccl4j_standin_usable(memory, 3 * GRANULE, 1) && !nccl4j_standin_usable(memory, 3 * GRANULE, 0));
  CHECK(nccl4j_standin_usable(memory + 2 * GRANULE, GRANULE, 0));

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
  CHECK(!permits('r', base));
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
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  CHECK(cu.create(&handle, GRANULE, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
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
  CHECK(permits('w', base));
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
  CHECK(nccl4j_standin_live("physical") == 1); /* the same memory */
  OK(cu.release(imported));
  OK(cu.unmap(base, granularity));
  OK(cu.release(handle));
  OK(cu.unreserve(base, granularity));
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(cu.create(&handle, granularity, &properties, 0) == CUDA_ERROR_INVALID_VALUE); /* cannot be exported */
}

/* A stream with work that waits until it is released. */
struct held {
  cudaStream_t stream;
  atomic_bool released;
};

static void hold(struct held *held) {
  atomic_init(&held->released, false);
  OK(cudaStreamCreate(&held->stream));
  OK(cudaLaunchHostFunc(held->stream, wait_for_gate, &held->released));
}

/* Ends the work, and with it the stream's thread, which takes away what waited for it. */
static void release(struct held *held) {
  int64_t threads = nccl4j_standin_live("thread");
  atomic_store(&held->released, true);
  OK(cudaStreamDestroy(held->stream));
  UNTIL(nccl4j_standin_live("thread") == threads - 1);
}

static CUmemGenericAllocationHandle allocate(size_t bytes) {
  CUmemAllocationProp properties = on_device(0);
  CUmemGenericAllocationHandle handle;
  OK(cu.create(&handle, bytes, &properties, 0));
  return handle;
}

static void map_for_use(CUdeviceptr base, size_t bytes, CUmemGenericAllocationHandle handle) {
  OK(cu.map(base, bytes, 0, handle, 0));
  OK(let_use(base, bytes, 0));
}

/* While work is pending, memory stays in place after it is unmapped, and its range can be mapped again at once. */
static void unmapping_under_work(void) {
  CUmemGenericAllocationHandle first = allocate(3 * GRANULE), second = allocate(GRANULE);
  CUdeviceptr base, other;
  struct held one, two;
  OK(cudaSetDevice(0));
  OK(cu.reserve(&base, 3 * GRANULE, 0, 0, 0));
  OK(cu.reserve(&other, 2 * GRANULE, 0, 0, 0));
  map_for_use(base, 2 * GRANULE, first);
  map_for_use(other, 2 * GRANULE, first);
  hold(&one);
  OK(cu.unmap(base, 2 * GRANULE));
  OK(cu.unmap(other, 2 * GRANULE));
  OK(cu.unreserve(other, 2 * GRANULE));
  CHECK(permits('w', base) && permits('w', other));
  OK(cu.map(base, GRANULE, 0, second, 0));
  CHECK(permits('w', base)); /* the work finds the new memory */
  OK(let_use(base, GRANULE, 0));
  release(&one);
  CHECK(permits('w', base) && !permits('r', other));
  CHECK(!permits('r', base + GRANULE)); /* which is not mapped again */

  /* The range is unmapped twice, under different work. */
  hold(&one);
  OK(cu.unmap(base, GRANULE));
  map_for_use(base, GRANULE, second);
  hold(&two);
  OK(cu.unmap(base, GRANULE));
  release(&one);
  CHECK(permits('w', base));
  release(&two);
  CHECK(!permits('r', base));

  /* Only a part of the range is unmapped the second time. */
  map_for_use(base, 3 * GRANULE, first);
  hold(&one);
  OK(cu.unmap(base, 3 * GRANULE));
  map_for_use(base + GRANULE, GRANULE, second);
  hold(&two);
  OK(cu.unmap(base + GRANULE, GRANULE));
  release(&one);
  CHECK(!permits('r', base) && permits('w', base + GRANULE) && !permits('r', base + 2 * GRANULE));
  release(&two);
  CHECK(!permits('r', base + GRANULE));
  OK(cu.unreserve(base, 3 * GRANULE));
  OK(cu.release(first));
  OK(cu.release(second));
}

/* Memory that is mapped for reading only refuses what writes to it. */
static void read_only_memory(void) {
  __typeof__(cuStreamWriteValue32) *write32 = entry("cuStreamWriteValue32", 11070);
  __typeof__(cuStreamWriteValue64) *write64 = entry("cuStreamWriteValue64", 11070);
  __typeof__(cuStreamWaitValue32) *wait32 = entry("cuStreamWaitValue32", 11070);
  CUmemAllocationProp properties = on_device(0);
  CUmemAccessDesc reader = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  CUmemGenericAllocationHandle handle;
  CUdeviceptr base;
  cudaStream_t stream;
  char bytes[8] = {1};
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&stream));
  OK(cu.create(&handle, GRANULE, &properties, 0));
  OK(cu.reserve(&base, GRANULE, 0, 0, 0));
  OK(cu.map(base, GRANULE, 0, handle, 0));
  OK(cu.access(base, GRANULE, &reader, 1));
  void *memory = (void *)(uintptr_t)base, *to[] = {memory};
  const void *from[] = {bytes};
  size_t sizes[] = {8}, first[] = {0};
  struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
  CHECK(nccl4j_standin_usable(memory, GRANULE, 0) && !nccl4j_standin_writable(memory, GRANULE, 0));
  CHECK(cudaMemset(memory, 1, 8) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(memory, bytes, 8, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyBatchAsync(to, from, sizes, 1, &attributes, first, 1, stream) == cudaErrorInvalidValue);
  CHECK(write32(stream, base, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(write64(stream, base, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(wait32(stream, base, 0, CU_STREAM_WAIT_VALUE_EQ));
  OK(cudaMemcpyAsync(bytes, memory, 8, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(bytes[0] == 0);
  OK(let_use(base, GRANULE, 0));
  OK(cudaMemset(memory, 1, 8));
  OK(cudaStreamDestroy(stream));
  OK(cu.unmap(base, GRANULE));
  OK(cu.unreserve(base, GRANULE));
  OK(cu.release(handle));
}

int main(void) {
  find_memory_functions();
  virtual_memory();
  refused_allocations();
  host_memory();
  unmapping_under_work();
  read_only_memory();
  nothing_left();
  printf("selftest_virtual: ok\n");
  return 0;
}
