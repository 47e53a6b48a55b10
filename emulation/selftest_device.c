/* The self-test of device queries: the driver's answers are the runtime's, and NCCL's requirements are met. */
#include "selftest_driver.h"

#include <pthread.h>

static void test_attributes(void) {
  CUresult (*get)(int *, CUdevice_attribute, CUdevice) = entry("cuDeviceGetAttribute", CUDART_VERSION);
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
    OK(get(&driver, (CUdevice_attribute)needed[i].attribute, 1));
    OK(cudaDeviceGetAttribute(&runtime, (enum cudaDeviceAttr)needed[i].attribute, 1));
    CHECK(driver == needed[i].value && runtime == driver);
  }
  int value;
  CHECK(get(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(get(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 8) == CUDA_ERROR_INVALID_DEVICE);
}

static void test_bus_ids(void) {
  for (int device = 0; device < 8; device++) {
    char bus_id[16];
    int found = -1;
    struct cudaDeviceProp properties;
    OK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device));
    CHECK(cudaDeviceGetByPCIBusId(&found, bus_id) == cudaSuccess && found == device);
    OK(cudaGetDeviceProperties(&properties, device));
    CHECK(properties.pciDomainID == 0xe4c0 && properties.pciBusID == device + 1 && properties.pciDeviceID == 0);
  }
  int found;
  CHECK(cudaDeviceGetByPCIBusId(&found, "e4c0:09:00.0") == cudaErrorInvalidDevice);
}

static void test_uuids(void) {
  CUresult (*get)(CUuuid *, CUdevice) = entry("cuDeviceGetUuid", CUDART_VERSION);
  CUuuid one, other;
  struct cudaDeviceProp properties;
  CHECK(get(&one, 0) == CUDA_SUCCESS && get(&other, 1) == CUDA_SUCCESS && memcmp(&one, &other, sizeof one) != 0);
  OK(cudaGetDeviceProperties(&properties, 1));
  CHECK(memcmp(&properties.uuid, &other, sizeof other) == 0);
}

/* A new thread, although the context of its device exists. */
static void *has_no_context(void *get) {
  CUcontext context = (CUcontext)&context;
  CHECK((*(__typeof__(cuCtxGetCurrent) **)get)(&context) == CUDA_SUCCESS && context == NULL);
  return NULL;
}

static void test_contexts(void) {
  CUresult (*get)(CUcontext *) = entry("cuCtxGetCurrent", CUDART_VERSION);
  CUresult (*set)(CUcontext) = entry("cuCtxSetCurrent", CUDART_VERSION);
  CUresult (*get_device)(CUdevice *) = entry("cuCtxGetDevice", CUDART_VERSION);
  CUcontext none, third, context;
  CUdevice device = -1;
  nccl4j_standin_reset();
  CHECK(get(&none) == CUDA_SUCCESS && none == NULL && get_device(&device) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cudaSetDevice(3) == cudaSuccess && get(&third) == CUDA_SUCCESS && third != NULL);
  CHECK(get_device(&device) == CUDA_SUCCESS && device == 3);
  CHECK(cudaSetDevice(4) == cudaSuccess && get(&context) == CUDA_SUCCESS && context != third);
  CHECK(set(third) == CUDA_SUCCESS && cudaGetDevice(&device) == cudaSuccess && device == 3);
  CHECK(set((CUcontext)&third) == CUDA_ERROR_INVALID_CONTEXT);
  OK(set(NULL));
  CHECK(get(&context) == CUDA_SUCCESS && context == NULL && get_device(&device) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cudaGetDevice(&device)); /* needs no context */
  CHECK(device == 3 && get(&context) == CUDA_SUCCESS && context == NULL);
  OK(cudaFree(NULL));
  CHECK(get(&context) == CUDA_SUCCESS && context == third);
  pthread_t thread;
  OK(pthread_create(&thread, NULL, has_no_context, &get));
  OK(pthread_join(thread, NULL));
}

static void test_variables(void) {
  static const struct {
    const char *name, *value, *rule;
  } refused[] = {
      {"NCCL4J_STANDIN_DEVICES", "many", "a number from 0 to 64"},
      {"NCCL4J_STANDIN_DEVICES", "", "a number from 0 to 64"},
      {"NCCL4J_STANDIN_DEVICES", "8x", "a number from 0 to 64"},
      {"NCCL4J_STANDIN_DEVICES", "-1", "a number from 0 to 64"},
      {"NCCL4J_STANDIN_DEVICES", "65", "a number from 0 to 64"},
      {"NCCL4J_STANDIN_MEMORY", "16G", "a number from 0 to 9223372036854775807"},
      {"NCCL4J_STANDIN_MEMORY", "99999999999999999999", "a number from 0 to 9223372036854775807"},
      {"NCCL4J_STANDIN_DRIVER", "12.8", "a number from 1000 to 99999"},
      {"NCCL4J_STANDIN_NVLINKS", "none", "a number from 0 to 18"},
      {"NCCL4J_STANDIN_NVLINKS", "19", "a number from 0 to 18"},
      {"NCCL4J_STANDIN_BUS_IDS", "0000:1b:00.0,", "at most 64 bus ids such as 0000:1b:00.0, with commas"},
      {"NCCL4J_STANDIN_BUS_IDS", "0000:1b:00.0;", "at most 64 bus ids such as 0000:1b:00.0, with commas"},
      {"NCCL4J_STANDIN_BUS_IDS", "0000:1b0:00.0", "at most 64 bus ids such as 0000:1b:00.0, with commas"},
      {"NCCL4J_STANDIN_FAIL", "cudaMalloc=2@1st", "of the form function=result@nth,..."},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    CHECK(refuses_variable(refused[i].name, refused[i].value, refused[i].rule));
}

int main(int count, char **arguments) {
  (void)arguments;
  int devices;
  OK(cudaGetDeviceCount(&devices)); /* reads the variables that nothing has read yet */
  if (count > 1) return 0;
  CUresult (*get)(CUdevice *, int) = entry("cuDeviceGet", CUDART_VERSION);
  CUdevice device = -1;
  CHECK(get(&device, 7) == CUDA_SUCCESS && device == 7 && get(&device, 8) == CUDA_ERROR_INVALID_DEVICE);
  test_attributes();
  test_bus_ids();
  test_uuids();
  test_contexts();
  test_variables();
  puts("selftest_device: ok");
  return 0;
}
