/*
 * An emulated NVML: what NCCL reads of it to find the topology of the machine, and no more. A function that is not here
 * is a missing symbol, as in an older NVML.
 *
 * The machine has H100 GPUs, each with NVLinks that are spread over four NVSwitches, or none (NCCL4J_STANDIN_NVLINKS=0).
 * Devices and bus ids come from the emulated CUDA, which links to this library so that both are loaded together.
 */
#include "nvml.h"

#include "standin.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEVICES 64
#define SWITCHES 4
#define SWITCH_BUS 0xf0
/* A device and its vendor, NVIDIA. */
#define H100 0x233010deu
#define NVSWITCH 0x22a310deu
/* As in cudart/properties.c. */
#define COMPUTE_MAJOR 9
#define COMPUTE_MINOR 0
#define PCIE_GENERATION 5
#define PCIE_WIDTH 16

struct nvmlDevice_st {
  char address_only; /* the handle of device i is the address of devices[i] */
};
static struct nvmlDevice_st devices[MAX_DEVICES];
static atomic_int initialized;

static int device_index(nvmlDevice_t device) {
  for (int i = 0; i < nccl4j_standin_device_count(); i++)
    if (device == &devices[i]) return i;
  return -1;
}

static nvmlReturn_t check(nvmlDevice_t device, const void *result) {
  if (atomic_load(&initialized) == 0) return NVML_ERROR_UNINITIALIZED;
  return device_index(device) < 0 || !result ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

#define RETURN_UNLESS_SUCCESS(expression)                                                          \
  do {                                                                                             \
    nvmlReturn_t checked = (expression);                                                           \
    if (checked != NVML_SUCCESS) return checked;                                                   \
  } while (0)

/* Every function of a device starts with this. */
#define CHECK(device, result) RETURN_UNLESS_SUCCESS(check(device, result))

nvmlReturn_t nvmlInit_v2(void) {
  if (nccl4j_standin_device_count() == 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  atomic_fetch_add(&initialized, 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }

nvmlReturn_t nvmlShutdown(void) {
  int count = atomic_load(&initialized);
  do {
    if (count == 0) return NVML_ERROR_UNINITIALIZED;
  } while (!atomic_compare_exchange_weak(&initialized, &count, count - 1));
  return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "nccl4j stand-in: success";
    case NVML_ERROR_UNINITIALIZED: return "nccl4j stand-in: NVML is not initialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "nccl4j stand-in: invalid argument";
    case NVML_ERROR_NOT_SUPPORTED: return "nccl4j stand-in: not supported";
    case NVML_ERROR_NOT_FOUND: return "nccl4j stand-in: not found";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "nccl4j stand-in: there is no driver";
  }
  return "nccl4j stand-in: unknown error";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
  if (atomic_load(&initialized) == 0) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = (unsigned)nccl4j_standin_device_count();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  if (atomic_load(&initialized) == 0) return NVML_ERROR_UNINITIALIZED;
  if (!device || index >= (unsigned)nccl4j_standin_device_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = &devices[index];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *busId, nvmlDevice_t *device) {
  struct nccl4j_standin_bus_id id;
  if (atomic_load(&initialized) == 0) return NVML_ERROR_UNINITIALIZED;
  if (!busId || !device || !nccl4j_standin_bus_parse(busId, &id)) return NVML_ERROR_INVALID_ARGUMENT;
  int index = nccl4j_standin_bus_device(&id);
  if (index < 0) return NVML_ERROR_NOT_FOUND;
  *device = &devices[index];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *busId, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(busId, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  CHECK(device, index);
  *index = (unsigned)device_index(device);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  CHECK(device, major);
  CHECK(device, minor);
  *major = COMPUTE_MAJOR;
  *minor = COMPUTE_MINOR;
  return NVML_SUCCESS;
}

static void describe(const struct nccl4j_standin_bus_id *id, unsigned product, nvmlPciInfo_t *info) {
  *info = (nvmlPciInfo_t){.domain = id->domain, .bus = id->bus, .device = id->slot, .pciDeviceId = product};
  snprintf(info->busId, sizeof info->busId, "%04X:%02X:%02X.0", id->domain & 0xffff, id->bus & 0xff, id->slot & 0x1f);
  memcpy(info->busIdLegacy, info->busId, sizeof info->busIdLegacy);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
  CHECK(device, info);
  struct nccl4j_standin_bus_id id = nccl4j_standin_bus_id(device_index(device));
  describe(&id, H100, info);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation) {
  CHECK(device, generation);
  *generation = PCIE_GENERATION;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
  CHECK(device, width);
  *width = PCIE_WIDTH;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status) {
  CHECK(device, status);
  CHECK(peer, status);
  bool nvlink = index == NVML_P2P_CAPS_INDEX_NVLINK || index == NVML_P2P_CAPS_INDEX_ATOMICS;
  *status = nvlink && nccl4j_standin_nvlinks() == 0 ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
  return NVML_SUCCESS;
}

/* A device has the links from 0 on. */
static nvmlReturn_t check_link(unsigned int link) {
  unsigned int links = (unsigned)nccl4j_standin_nvlinks();
  return links == 0 ? NVML_ERROR_NOT_SUPPORTED : link < links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *state) {
  CHECK(device, state);
  RETURN_UNLESS_SUCCESS(check_link(link));
  *state = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
                                           unsigned int *result) {
  CHECK(device, result);
  RETURN_UNLESS_SUCCESS(check_link(link));
  if (capability > NVML_NVLINK_CAP_VALID) return NVML_ERROR_INVALID_ARGUMENT;
  *result = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
  CHECK(device, info);
  RETURN_UNLESS_SUCCESS(check_link(link));
  struct nccl4j_standin_bus_id id = nccl4j_standin_bus_id(device_index(device));
  id.bus = SWITCH_BUS + link % SWITCHES;
  id.slot = 0;
  describe(&id, NVSWITCH, info);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
  CHECK(device, type);
  RETURN_UNLESS_SUCCESS(check_link(link));
  *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
  CHECK(device, values);
  if (count < 1) return NVML_ERROR_INVALID_ARGUMENT;
  for (nvmlFieldValue_t *field = values; field < values + count; field++) {
    field->timestamp = field->latencyUsec = 0;
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->nvmlReturn = NVML_SUCCESS;
    field->value = (nvmlValue_t){0};
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    switch (field->fieldId) {
      case NVML_FI_DEV_NVLINK_LINK_COUNT: field->value.uiVal = (unsigned)nccl4j_standin_nvlinks(); break;
      case NVML_FI_DEV_NVLINK_GET_STATE:
        field->nvmlReturn = nvmlDeviceGetNvLinkState(device, field->scopeId, &state);
        field->value.uiVal = state;
        break;
      case NVML_FI_DEV_C2C_LINK_COUNT: break; /* none: the CPU is not a Grace */
      default: field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
  }
  return NVML_SUCCESS;
}

/* A fabric of several nodes (MNNVL). */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info) {
  CHECK(device, info);
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, void *info) {
  CHECK(device, info);
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlSystemGetConfComputeSettings(void *settings) {
  if (atomic_load(&initialized) == 0) return NVML_ERROR_UNINITIALIZED;
  return settings ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
}
