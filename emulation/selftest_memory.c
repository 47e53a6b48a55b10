/* Tests of driver entry points, allocations and pools; see README.md. */
#include "selftest_driver.h"

static void call_missing_function(void) {
  int (*missing)(int) = (int (*)(int))entry("cuNobodyEmulatesThis", 13000);
  missing(7);
}

static void ask_for_too_many_functions(void) {
  for (int i = 0; i < 100; i++) {
    char name[16];
    snprintf(name, sizeof name, "cuMissing%d", i);
    entry(name, 13000);
  }
}

static void ask_for_per_thread_functions(void) {
  void *function;
  cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &function, 13000, cudaEnablePerThreadDefaultStream, NULL);
}

static void ask_for_an_unknown_attribute(void) {
  void *memory;
  int value;
  OK(cudaMalloc(&memory, 16));
  cu.attribute(&value, CU_POINTER_ATTRIBUTE_P2P_TOKENS, address(memory));
}

static void nothing(void) {}

static void add_too_many_hooks(void) {
  for (int i = 0; i < 5; i++) nccl4j_standin_on_reset(nothing);
}

static void entry_points(void) {
  __typeof__(cuGetProcAddress) *get = entry("cuGetProcAddress", 12000);
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
  CHECK(refuses(call_missing_function, "nccl4j emulation: cuNobodyEmulatesThis is not emulated\n"));
  CHECK(refuses(ask_for_too_many_functions, /* after two above */
                "nccl4j emulation: a look-up of more than 32 missing functions, now cuMissing30, is not emulated\n"));
  CHECK(refuses(ask_for_per_thread_functions,
                "nccl4j emulation: a driver function for the per-thread default stream is not emulated\n"));
  CHECK(refuses(ask_for_an_unknown_attribute, "nccl4j emulation: cuPointerGetAttribute of 5 is not emulated\n"));
  CHECK(refuses(add_too_many_hooks, "nccl4j stand-in: more than 4 functions for a reset\n"));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  OK(cudaGetDriverEntryPoint("cuGetProcAddress", &function, cudaEnableDefault, NULL));
  CHECK(cudaGetDriverEntryPoint("cuGetProcAddress", &function, 8, NULL) == cudaErrorInvalidValue);
#pragma GCC diagnostic pop
  CHECK(function == (void *)get);

  OK(nccl4j_standin_fail("cuGetProcAddress", CUDA_ERROR_UNKNOWN, 1));
  CHECK(get("cuGetProcAddress", &function, 12000, 0, NULL) == CUDA_ERROR_UNKNOWN);
  OK(get("cuGetProcAddress", &function, 12000, 0, NULL));
}

static void error_names(void) {
  __typeof__(cuGetErrorName) *name = entry("cuGetErrorName", 6000);
  __typeof__(cuGetErrorString) *text = entry("cuGetErrorString", 6000);
  const char *found = NULL;
  OK(name(CUDA_ERROR_OUT_OF_MEMORY, &found));
  CHECK(strcmp(found, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
  CHECK(name((CUresult)12345, &found) == CUDA_ERROR_INVALID_VALUE && found == NULL);
  OK(text(CUDA_ERROR_OUT_OF_MEMORY, &found));
  CHECK(strcmp(found, "out of memory") == 0);
  CHECK(text((CUresult)12345, &found) == CUDA_ERROR_INVALID_VALUE && found == NULL);
  found = "";
  CHECK(text((CUresult)cudaErrorInvalidMemcpyDirection, &found) == CUDA_ERROR_INVALID_VALUE && found == NULL);
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
  OK(cu.attribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address(memory) + 5));
  CHECK(base == address(memory));
  OK(cu.attribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address(memory) + 5));
  CHECK(base == address(memory) + 5);
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

static void host_and_managed_memory(void) {
  char *managed, *pinned, pageable[5000];
  void *device;
  CHECK(cudaMallocManaged((void **)&managed, 100, 0) == cudaErrorInvalidValue);
  CHECK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachSingle) == cudaErrorInvalidValue);
  CHECK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal | cudaMemAttachHost) == cudaErrorInvalidValue);
  OK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachHost));
  OK(cudaFree(managed));
  OK(cudaMallocManaged((void **)&managed, 100, cudaMemAttachGlobal));
  CHECK(unsigned_attribute(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
  CHECK(unsigned_attribute(managed, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_DEVICE);
  OK(cudaFree(managed));
  OK(cudaMallocHost((void **)&pinned, 100));
  CHECK(unsigned_attribute(pinned, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0);
  OK(cudaFreeHost(pinned));
  CHECK(cudaHostAlloc((void **)&pinned, 100, 1 << 20) == cudaErrorInvalidValue);

  CHECK(!nccl4j_standin_reachable(pageable, 1));
  CHECK(cudaHostGetDevicePointer(&device, pageable, 0) == cudaErrorInvalidValue);
  CHECK(cudaHostRegister(pageable, sizeof pageable, 16) == cudaErrorInvalidValue);
  CHECK(cudaHostRegister(pageable, sizeof pageable, cudaHostRegisterIoMemory) == cudaErrorNotSupported);
  CHECK(cudaHostRegister(pageable, sizeof pageable, cudaHostRegisterReadOnly) == cudaErrorNotSupported);
  OK(cudaHostRegister(pageable, sizeof pageable, cudaHostRegisterMapped | cudaHostRegisterPortable));
  CHECK(cudaHostRegister(pageable + 4999, 10, cudaHostRegisterMapped) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(cudaHostRegister(pageable, SIZE_MAX, cudaHostRegisterMapped) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(nccl4j_standin_reachable(pageable, sizeof pageable) && !nccl4j_standin_reachable(pageable, SIZE_MAX));
  OK(cudaHostGetDevicePointer(&device, pageable + 7, 0));
  CHECK(device == pageable + 7);
  CHECK(cudaFreeHost(pageable) == cudaErrorInvalidValue);
  CHECK(cudaHostUnregister(pageable + 7) == cudaErrorHostMemoryNotRegistered);
  OK(cudaHostUnregister(pageable));
  CHECK(!nccl4j_standin_reachable(pageable, 1));
}

/* In a child process, since all descriptors are used. */
static void use_all_descriptors(void) {
  size_t before = free_memory(0), left = 0;
  void *memory;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp properties = on_device(0);
  setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64});
  cudaError_t error = cudaSuccess;
  while ((error = cudaMalloc(&memory, 4096)) == cudaSuccess) left += 4096;
  CHECK(error == cudaErrorMemoryAllocation && left > 0 && free_memory(0) == before - left);
  CHECK(cu.create(&handle, GRANULE, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY && free_memory(0) == before - left);
}

static void no_descriptors(void) {
  int status;
  const char *message = "nccl4j emulation: no descriptor is left for memory; raise the limit (ulimit -n)\n";
  const char *text = run_child(use_all_descriptors, &status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(strncmp(text, message, strlen(message)) == 0);
}

/* Setting large ranges to zero takes another way; the bytes next to them must stay. */
static void zeroing(void) {
  char *memory;
  OK(cudaMalloc((void **)&memory, 4 * MIB));
  OK(cudaMemset(memory, 1, 4 * MIB));
  OK(cudaMemset(memory + 100, 0, 3 * MIB));
  OK(cudaMemset(memory + 200, 1, 300));
  OK(cudaMemset(memory + 200, 0, 300));
  CHECK(cudaMemset(memory, 0, SIZE_MAX) == cudaErrorInvalidValue);
  CHECK(cudaMemset(memory + 1, 0, SIZE_MAX) == cudaErrorInvalidValue);
  for (size_t i = 0; i < 4 * MIB; i++) CHECK(memory[i] == (i < 100 || i >= 100 + 3 * MIB));
  OK(cudaFree(memory));
}

static void use_by_other_devices(void) {
  char *memory, *pinned;
  OK(cudaSetDevice(1));
  OK(cudaMalloc((void **)&memory, 100));
  OK(cudaHostAlloc((void **)&pinned, 100, cudaHostAllocDefault));
  CHECK(nccl4j_standin_usable(memory, 100, 1) && !nccl4j_standin_usable(memory, 101, 1));
  CHECK(nccl4j_standin_usable(pinned, 100, 2) && !nccl4j_standin_usable(pinned, 101, 2));
  CHECK(nccl4j_standin_reachable(memory, 100) && !nccl4j_standin_usable(memory, 100, 2));
  OK(cudaSetDevice(2));
  OK(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(nccl4j_standin_usable(memory, 100, 2) && !nccl4j_standin_usable(memory, 100, 3));
  OK(cudaDeviceDisablePeerAccess(1));
  CHECK(!nccl4j_standin_usable(memory, 100, 2));
  OK(cudaFree(memory));
  OK(cudaFreeHost(pinned));
}

struct held {
  atomic_bool released, done;
};

static void hold_stream(void *argument) {
  struct held *held = argument;
  wait_for_gate(&held->released);
  usleep(50000); /* for a free that would not wait */
  atomic_store(&held->done, true);
}

/* Without the stand-in's NCCL, only cudaFree waits, and only for its device. */
static void waiting(void) {
  struct held held = {false, false};
  char *memory, *other, *pinned;
  cudaStream_t stream;
  OK(cudaSetDevice(0));
  OK(cudaMalloc((void **)&other, 100));
  OK(cudaSetDevice(1));
  OK(cudaStreamCreate(&stream));
  OK(cudaLaunchHostFunc(stream, hold_stream, &held));
  OK(cudaHostAlloc((void **)&pinned, 100, cudaHostAllocDefault));
  OK(cudaMalloc((void **)&memory, 100));
  OK(cudaFreeHost(pinned));
  CHECK(pinned[0] != 0); /* the bytes stay while the work is pending */
  OK(cudaFree(other));
  CHECK(!atomic_load(&held.done));
  atomic_store(&held.released, true);
  OK(cudaFree(memory));
  CHECK(atomic_load(&held.done));
  OK(cudaStreamDestroy(stream));
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
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  CHECK(cudaMemPoolCreate(&pool, &properties) == cudaErrorNotSupported);
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.id = 64;
  CHECK(cudaMemPoolCreate(&pool, &properties) == cudaErrorInvalidDevice);
  CHECK(free_memory(2) == before);
}

int main(void) {
  find_memory_functions();
  entry_points();
  error_names();
  allocations();
  host_and_managed_memory();
  no_descriptors();
  zeroing();
  use_by_other_devices();
  waiting();
  pools();
  nothing_left();
  printf("selftest_memory: ok\n");
  return 0;
}
