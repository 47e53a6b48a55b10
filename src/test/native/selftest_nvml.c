/* The self-test of the emulated NVML: the machine with NVLinks, the one without, and what it refuses. */
#include "nvml/nvml.h"

#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "selftest_nvml: line %d: %s\n", __LINE__, #condition);                       \
      failures++;                                                                                  \
    }                                                                                              \
  } while (0)

static nvmlDevice_t device_at(unsigned int index) {
  nvmlDevice_t device = NULL;
  EXPECT(nvmlDeviceGetHandleByIndex(index, &device) == NVML_SUCCESS);
  return device;
}

static void test_before_initialization(void) {
  unsigned int count;
  nvmlDevice_t device;
  EXPECT(nvmlDeviceGetCount(&count) == NVML_ERROR_UNINITIALIZED);
  EXPECT(nvmlDeviceGetHandleByIndex(0, &device) == NVML_ERROR_UNINITIALIZED);
  EXPECT(nvmlShutdown() == NVML_ERROR_UNINITIALIZED);
  nccl4j_standin_set_devices(0);
  EXPECT(nvmlInit() == NVML_ERROR_DRIVER_NOT_LOADED);
  nccl4j_standin_reset();
}

/* Bus ids and compute capabilities must be CUDA's, or NCCL does not find the device. */
static void test_agrees_with_cuda(void) {
  unsigned int count = 0;
  int devices = -1;
  EXPECT(nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS && cudaGetDeviceCount(&devices) == cudaSuccess);
  EXPECT(count == 8 && devices == 8);
  for (unsigned int i = 0; i < count; i++) {
    char bus_id[16];
    nvmlDevice_t device = NULL;
    nvmlPciInfo_t info;
    unsigned int index = count;
    int major, minor, cuda_major, cuda_minor;
    EXPECT(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, (int)i) == cudaSuccess);
    EXPECT(nvmlDeviceGetHandleByPciBusId(bus_id, &device) == NVML_SUCCESS && device == device_at(i));
    EXPECT(nvmlDeviceGetIndex(device, &index) == NVML_SUCCESS && index == i);
    EXPECT(nvmlDeviceGetPciInfo_v3(device, &info) == NVML_SUCCESS);
    EXPECT(strcmp(info.busId, bus_id) == 0 && strcmp(info.busIdLegacy, bus_id) == 0);
    EXPECT((info.pciDeviceId & 0xffff) == 0x10de);
    EXPECT(nvmlDeviceGetCudaComputeCapability(device, &major, &minor) == NVML_SUCCESS);
    cudaDeviceGetAttribute(&cuda_major, cudaDevAttrComputeCapabilityMajor, (int)i);
    cudaDeviceGetAttribute(&cuda_minor, cudaDevAttrComputeCapabilityMinor, (int)i);
    EXPECT(major == cuda_major && minor == cuda_minor);
  }
}

static void test_machine_of_environment(unsigned int links, const char *first_bus_id) {
  nvmlDevice_t device = device_at(0), peer = device_at(1);
  nvmlPciInfo_t info, remote;
  EXPECT(nvmlDeviceGetPciInfo_v3(device, &info) == NVML_SUCCESS && strcmp(info.busId, first_bus_id) == 0);

  unsigned int supported = 0;
  nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_GPU;
  unsigned int on_switch[4] = {0};
  for (unsigned int link = 0; link < links; link++) {
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = link};
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    EXPECT(nvmlDeviceGetNvLinkCapability(device, link, NVML_NVLINK_CAP_P2P_SUPPORTED, &supported) == NVML_SUCCESS);
    EXPECT(supported == 1);
    EXPECT(nvmlDeviceGetNvLinkState(device, link, &state) == NVML_SUCCESS && state == NVML_FEATURE_ENABLED);
    EXPECT(nvmlDeviceGetFieldValues(device, 1, &field) == NVML_SUCCESS && field.nvmlReturn == NVML_SUCCESS);
    EXPECT(field.valueType == NVML_VALUE_TYPE_UNSIGNED_INT && field.value.uiVal == NVML_FEATURE_ENABLED);
    EXPECT(nvmlDeviceGetNvLinkRemotePciInfo(device, link, &info) == NVML_SUCCESS);
    EXPECT(nvmlDeviceGetNvLinkRemotePciInfo(peer, link, &remote) == NVML_SUCCESS);
    EXPECT(strcmp(info.busId, remote.busId) == 0 && info.bus >= 0xf0 && info.bus < 0xf4);
    on_switch[info.bus & 3]++;
    EXPECT(nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) == NVML_SUCCESS);
    EXPECT(type == NVML_NVLINK_DEVICE_TYPE_SWITCH);
  }
  for (unsigned int s = 0; s < 4; s++) EXPECT(on_switch[s] == (links + 3 - s) / 4);

  nvmlFieldValue_t fields[] = {{.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT},
                               {.fieldId = NVML_FI_DEV_C2C_LINK_COUNT},
                               {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = links},
                               {.fieldId = 1}};
  EXPECT(nvmlDeviceGetFieldValues(device, 4, fields) == NVML_SUCCESS);
  EXPECT(fields[0].nvmlReturn == NVML_SUCCESS && fields[0].value.uiVal == links);
  EXPECT(fields[1].nvmlReturn == NVML_SUCCESS && fields[1].value.uiVal == 0);
  nvmlReturn_t refusal = links > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
  EXPECT(fields[2].nvmlReturn == refusal);
  EXPECT(fields[3].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
  EXPECT(nvmlDeviceGetNvLinkCapability(device, links, NVML_NVLINK_CAP_VALID, &supported) == refusal);
  EXPECT(nvmlDeviceGetNvLinkRemoteDeviceType(device, links, &type) == refusal);

  nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_NOT_SUPPORTED;
  EXPECT(nvmlDeviceGetP2PStatus(device, peer, NVML_P2P_CAPS_INDEX_WRITE, &status) == NVML_SUCCESS);
  EXPECT(status == NVML_P2P_STATUS_OK);
  EXPECT(nvmlDeviceGetP2PStatus(device, peer, NVML_P2P_CAPS_INDEX_NVLINK, &status) == NVML_SUCCESS);
  EXPECT((status == NVML_P2P_STATUS_OK) == (links > 0));
}

static void test_refusals(void) {
  nvmlDevice_t device = device_at(7), none = (nvmlDevice_t)&failures;
  unsigned int number;
  char buffer[256];
  EXPECT(nvmlDeviceGetHandleByIndex(8, &device) == NVML_ERROR_INVALID_ARGUMENT);
  EXPECT(nvmlDeviceGetHandleByPciBusId("0000:00:00.0", &device) == NVML_ERROR_NOT_FOUND);
  EXPECT(nvmlDeviceGetHandleByPciBusId("none", &device) == NVML_ERROR_INVALID_ARGUMENT);
  EXPECT(nvmlDeviceGetIndex(none, &number) == NVML_ERROR_INVALID_ARGUMENT);
  EXPECT(nvmlDeviceGetIndex(device, NULL) == NVML_ERROR_INVALID_ARGUMENT);
  EXPECT(nvmlDeviceGetGpuFabricInfoV(device, buffer) == NVML_ERROR_NOT_SUPPORTED);
  EXPECT(nvmlDeviceGetPlatformInfo(device, buffer) == NVML_ERROR_NOT_SUPPORTED);
  EXPECT(nvmlSystemGetConfComputeSettings(buffer) == NVML_ERROR_NOT_SUPPORTED);
  EXPECT(nvmlDeviceGetCurrPcieLinkGeneration(device, &number) == NVML_SUCCESS && number == 5);
  EXPECT(nvmlDeviceGetCurrPcieLinkWidth(device, &number) == NVML_SUCCESS && number == 16);
  EXPECT(strstr(nvmlErrorString(NVML_ERROR_NOT_FOUND), "not found") != NULL);
}

/* The environment is read when the library is loaded, so that another machine is another process. */
int main(int count, char **arguments) {
  if (count == 2) {
    EXPECT(nvmlInit_v2() == NVML_SUCCESS);
    test_machine_of_environment(0, "0001:1B:00.0");
    return failures != 0;
  }
  test_before_initialization();
  EXPECT(nvmlInit() == NVML_SUCCESS && nvmlInit_v2() == NVML_SUCCESS && nvmlShutdown() == NVML_SUCCESS);
  test_agrees_with_cuda();
  test_machine_of_environment(18, "E4C0:01:00.0");
  test_refusals();
  EXPECT(nvmlShutdown() == NVML_SUCCESS && nvmlShutdown() == NVML_ERROR_UNINITIALIZED);

  setenv("NCCL4J_STANDIN_NVLINKS", "0", 1);
  setenv("NCCL4J_STANDIN_BUS_IDS", "0001:1b:00.0,0001:43:00.0", 1);
  char command[4096];
  snprintf(command, sizeof command, "'%s' again", arguments[0]);
  EXPECT(system(command) == 0);
  if (failures == 0) puts("selftest_nvml: ok");
  return failures != 0;
}
