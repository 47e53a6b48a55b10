/* The self-test of the emulated NVML: the machine with NVLinks, the one without, and what it refuses. */
#include "nvml/nvml.h"

#include "selftest_check.h"
#include "standin.h"

static nvmlDevice_t device_at(unsigned int index) {
  nvmlDevice_t device = NULL;
  OK(nvmlDeviceGetHandleByIndex(index, &device));
  return device;
}

static void test_before_initialization(void) {
  unsigned int count;
  nvmlDevice_t device;
  CHECK(nvmlDeviceGetCount(&count) == NVML_ERROR_UNINITIALIZED);
  CHECK(nvmlDeviceGetHandleByIndex(0, &device) == NVML_ERROR_UNINITIALIZED);
  CHECK(nvmlShutdown() == NVML_ERROR_UNINITIALIZED);
  nccl4j_standin_set_devices(0);
  CHECK(nvmlInit() == NVML_ERROR_DRIVER_NOT_LOADED);
  nccl4j_standin_reset();
}

/* Bus ids and compute capabilities must be CUDA's, or NCCL does not find the device. */
static void test_agrees_with_cuda(void) {
  unsigned int count = 0;
  int devices = -1;
  CHECK(nvmlDeviceGetCount_v2(&count) == NVML_SUCCESS && cudaGetDeviceCount(&devices) == cudaSuccess);
  CHECK(count == 8 && devices == 8);
  for (unsigned int i = 0; i < count; i++) {
    char bus_id[16];
    nvmlDevice_t device = NULL;
    nvmlPciInfo_t info;
    unsigned int index = count;
    int major, minor, cuda_major, cuda_minor;
    OK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, (int)i));
    CHECK(nvmlDeviceGetHandleByPciBusId(bus_id, &device) == NVML_SUCCESS && device == device_at(i));
    CHECK(nvmlDeviceGetIndex(device, &index) == NVML_SUCCESS && index == i);
    OK(nvmlDeviceGetPciInfo_v3(device, &info));
    CHECK(strcmp(info.busId, bus_id) == 0 && strcmp(info.busIdLegacy, bus_id) == 0);
    CHECK((info.pciDeviceId & 0xffff) == 0x10de);
    OK(nvmlDeviceGetCudaComputeCapability(device, &major, &minor));
    cudaDeviceGetAttribute(&cuda_major, cudaDevAttrComputeCapabilityMajor, (int)i);
    cudaDeviceGetAttribute(&cuda_minor, cudaDevAttrComputeCapabilityMinor, (int)i);
    CHECK(major == cuda_major && minor == cuda_minor);
  }
}

static void test_machine_of_environment(unsigned int links, const char *first_bus_id) {
  nvmlDevice_t device = device_at(0), peer = device_at(1);
  nvmlPciInfo_t info, remote;
  CHECK(nvmlDeviceGetPciInfo_v3(device, &info) == NVML_SUCCESS && strcmp(info.busId, first_bus_id) == 0);

  unsigned int supported = 0;
  nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_GPU;
  unsigned int on_switch[4] = {0};
  for (unsigned int link = 0; link < links; link++) {
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = link};
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    OK(nvmlDeviceGetNvLinkCapability(device, link, NVML_NVLINK_CAP_P2P_SUPPORTED, &supported));
    CHECK(supported == 1);
    CHECK(nvmlDeviceGetNvLinkState(device, link, &state) == NVML_SUCCESS && state == NVML_FEATURE_ENABLED);
    CHECK(nvmlDeviceGetFieldValues(device, 1, &field) == NVML_SUCCESS && field.nvmlReturn == NVML_SUCCESS);
    CHECK(field.valueType == NVML_VALUE_TYPE_UNSIGNED_INT && field.value.uiVal == NVML_FEATURE_ENABLED);
    OK(nvmlDeviceGetNvLinkRemotePciInfo(device, link, &info));
    OK(nvmlDeviceGetNvLinkRemotePciInfo(peer, link, &remote));
    CHECK(strcmp(info.busId, remote.busId) == 0 && info.bus >= 0xf0 && info.bus < 0xf4);
    on_switch[info.bus & 3]++;
    OK(nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type));
    CHECK(type == NVML_NVLINK_DEVICE_TYPE_SWITCH);
  }
  for (unsigned int s = 0; s < 4; s++) CHECK(on_switch[s] == (links + 3 - s) / 4);

  nvmlFieldValue_t fields[] = {{.fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT},
                               {.fieldId = NVML_FI_DEV_C2C_LINK_COUNT},
                               {.fieldId = NVML_FI_DEV_NVLINK_GET_STATE, .scopeId = links},
                               {.fieldId = 1}};
  OK(nvmlDeviceGetFieldValues(device, 4, fields));
  CHECK(fields[0].nvmlReturn == NVML_SUCCESS && fields[0].value.uiVal == links);
  CHECK(fields[1].nvmlReturn == NVML_SUCCESS && fields[1].value.uiVal == 0);
  nvmlReturn_t refusal = links > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
  CHECK(fields[2].nvmlReturn == refusal);
  CHECK(fields[3].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
  CHECK(nvmlDeviceGetNvLinkCapability(device, links, NVML_NVLINK_CAP_VALID, &supported) == refusal);
  CHECK(nvmlDeviceGetNvLinkRemoteDeviceType(device, links, &type) == refusal);

  nvmlGpuP2PStatus_t status = NVML_P2P_STATUS_NOT_SUPPORTED;
  OK(nvmlDeviceGetP2PStatus(device, peer, NVML_P2P_CAPS_INDEX_WRITE, &status));
  CHECK(status == NVML_P2P_STATUS_OK);
  OK(nvmlDeviceGetP2PStatus(device, peer, NVML_P2P_CAPS_INDEX_NVLINK, &status));
  CHECK((status == NVML_P2P_STATUS_OK) == (links > 0));
}

static void test_refusals(void) {
  nvmlDevice_t device = device_at(7), none = (nvmlDevice_t)&device;
  unsigned int number;
  char buffer[256];
  CHECK(nvmlDeviceGetHandleByIndex(8, &device) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetHandleByPciBusId("0000:00:00.0", &device) == NVML_ERROR_NOT_FOUND);
  CHECK(nvmlDeviceGetHandleByPciBusId("none", &device) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetIndex(none, &number) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetIndex(device, NULL) == NVML_ERROR_INVALID_ARGUMENT);
  CHECK(nvmlDeviceGetGpuFabricInfoV(device, buffer) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(nvmlDeviceGetPlatformInfo(device, buffer) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(nvmlSystemGetConfComputeSettings(buffer) == NVML_ERROR_NOT_SUPPORTED);
  CHECK(nvmlDeviceGetCurrPcieLinkGeneration(device, &number) == NVML_SUCCESS && number == 5);
  CHECK(nvmlDeviceGetCurrPcieLinkWidth(device, &number) == NVML_SUCCESS && number == 16);
  CHECK(strstr(nvmlErrorString(NVML_ERROR_NOT_FOUND), "not found") != NULL);
}

/* The environment is read when the library is loaded, so that another machine is another process. */
int main(int count, char **arguments) {
  if (count == 2) {
    OK(nvmlInit_v2());
    test_machine_of_environment(0, "0001:1B:00.0");
    return 0;
  }
  test_before_initialization();
  CHECK(nvmlInit() == NVML_SUCCESS && nvmlInit_v2() == NVML_SUCCESS && nvmlShutdown() == NVML_SUCCESS);
  test_agrees_with_cuda();
  test_machine_of_environment(18, "E4C0:01:00.0");
  test_refusals();
  CHECK(nvmlShutdown() == NVML_SUCCESS && nvmlShutdown() == NVML_ERROR_UNINITIALIZED);

  setenv("NCCL4J_STANDIN_NVLINKS", "0", 1);
  setenv("NCCL4J_STANDIN_BUS_IDS", "0001:1b:00.0,0001:43:00.0", 1);
  char command[4096];
  snprintf(command, sizeof command, "'%s' again", arguments[0]);
  CHECK(system(command) == 0);
  puts("selftest_nvml: ok");
  return 0;
}
