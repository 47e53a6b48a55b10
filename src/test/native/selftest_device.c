/* The self-test of device queries: the driver's answers are the runtime's, and NCCL's requirements are met. */
#include "standin.h"

#include <cuda.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "selftest_device: line %d: %s\n", __LINE__, #condition);                     \
      failures++;                                                                                  \
    }                                                                                              \
  } while (0)

static void *driver_function(const char *name) {
  void *function = NULL;
  enum cudaDriverEntryPointQueryResult status;
  EXPECT(cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault, &status) == cudaSuccess);
  EXPECT(function && status == cudaDriverEntryPointSuccess);
  return function;
}

static void test_attributes(void) {
  CUresult (*get)(int *, CUdevice_attribute, CUdevice) = driver_function("cuDeviceGetAttribute");
  static const struct {
    int attribute, value;
  } needed[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
                {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
                {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
                {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
                {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
                {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
                {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
                {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
                {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
                {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
                {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
                {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0}};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    int driver = -1, runtime = -1;
    EXPECT(get(&driver, (CUdevice_attribute)needed[i].attribute, 1) == CUDA_SUCCESS);
    EXPECT(cudaDeviceGetAttribute(&runtime, (enum cudaDeviceAttr)needed[i].attribute, 1) == cudaSuccess);
    EXPECT(driver == needed[i].value && runtime == driver);
  }
  int value;
  EXPECT(get(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(get(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 8) == CUDA_ERROR_INVALID_DEVICE);
}

static void test_bus_ids(void) {
  for (int device = 0; device < 8; device++) {
    char bus_id[16];
    int found = -1;
    struct cudaDeviceProp properties;
    EXPECT(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) == cudaSuccess);
    EXPECT(cudaDeviceGetByPCIBusId(&found, bus_id) == cudaSuccess && found == device);
    EXPECT(cudaGetDeviceProperties(&properties, device) == cudaSuccess);
    EXPECT(properties.pciDomainID == 0xe4c0 && properties.pciBusID == device + 1 && properties.pciDeviceID == 0);
  }
  int found;
  EXPECT(cudaDeviceGetByPCIBusId(&found, "e4c0:09:00.0") == cudaErrorInvalidDevice);
}

static void test_uuids(void) {
  CUresult (*get)(CUuuid *, CUdevice) = driver_function("cuDeviceGetUuid");
  CUuuid one, other;
  struct cudaDeviceProp properties;
  EXPECT(get(&one, 0) == CUDA_SUCCESS && get(&other, 1) == CUDA_SUCCESS && memcmp(&one, &other, sizeof one) != 0);
  EXPECT(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  EXPECT(memcmp(&properties.uuid, &other, sizeof other) == 0);
}

static void test_contexts(void) {
  CUresult (*get)(CUcontext *) = driver_function("cuCtxGetCurrent");
  CUresult (*set)(CUcontext) = driver_function("cuCtxSetCurrent");
  CUresult (*get_device)(CUdevice *) = driver_function("cuCtxGetDevice");
  CUcontext none, third, context;
  CUdevice device = -1;
  nccl4j_standin_reset();
  EXPECT(get(&none) == CUDA_SUCCESS && none == NULL && get_device(&device) == CUDA_ERROR_INVALID_CONTEXT);
  EXPECT(cudaSetDevice(3) == cudaSuccess && get(&third) == CUDA_SUCCESS && third != NULL);
  EXPECT(get_device(&device) == CUDA_SUCCESS && device == 3);
  EXPECT(cudaSetDevice(4) == cudaSuccess && get(&context) == CUDA_SUCCESS && context != third);
  EXPECT(set(third) == CUDA_SUCCESS && cudaGetDevice(&device) == cudaSuccess && device == 3);
  EXPECT(set((CUcontext)&failures) == CUDA_ERROR_INVALID_CONTEXT);
}

int main(void) {
  CUresult (*get)(CUdevice *, int) = driver_function("cuDeviceGet");
  CUdevice device = -1;
  EXPECT(get(&device, 7) == CUDA_SUCCESS && device == 7 && get(&device, 8) == CUDA_ERROR_INVALID_DEVICE);
  test_attributes();
  test_bus_ids();
  test_uuids();
  test_contexts();
  if (failures == 0) puts("selftest_device: ok");
  return failures != 0;
}
