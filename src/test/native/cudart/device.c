/*
 * Devices: their number, the current device of a thread, bus ids, peers.
 */
#include "cudart.h"

#include <stdio.h>

#define DEFAULT_DEVICES 8
#define DEFAULT_MEMORY (INT64_C(16) << 30)

STANDIN_SITE(cudaGetDeviceCount)
STANDIN_SITE(cudaGetDevice)
STANDIN_SITE(cudaSetDevice)
STANDIN_SITE(cudaDeviceGetPCIBusId)
STANDIN_SITE(cudaDeviceGetByPCIBusId)
STANDIN_SITE(cudaDeviceCanAccessPeer)
STANDIN_SITE(cudaDeviceEnablePeerAccess)
STANDIN_SITE(cudaDeviceDisablePeerAccess)
STANDIN_SITE(cudaDeviceGetStreamPriorityRange)
STANDIN_SITE(cudaDeviceSetLimit)

static atomic_int device_count = -1;
static _Atomic uint64_t memory_bytes;
static _Thread_local int current;
static _Thread_local bool bound; /* to the current device's context */
static atomic_bool peers[MAX_DEVICES][MAX_DEVICES];
static atomic_bool contexts[MAX_DEVICES];
static atomic_int driver_version;

void devices_reset(void) {
  atomic_store(&device_count, (int)nccl4j_standin_number("NCCL4J_STANDIN_DEVICES", DEFAULT_DEVICES, 0, MAX_DEVICES));
  atomic_store(&memory_bytes, (uint64_t)nccl4j_standin_number("NCCL4J_STANDIN_MEMORY", DEFAULT_MEMORY, 0, INT64_MAX));
  atomic_store(&driver_version, (int)nccl4j_standin_number("NCCL4J_STANDIN_DRIVER", CUDART_VERSION, 1000, 99999));
  for (int a = 0; a < MAX_DEVICES; a++) atomic_store(&contexts[a], false);
  for (int a = 0; a < MAX_DEVICES; a++)
    for (int b = 0; b < MAX_DEVICES; b++) atomic_store(&peers[a][b], false);
}

__attribute__((constructor)) static void devices_first(void) { devices_reset(); }

int nccl4j_standin_set_devices(int count) {
  if (count < 0 || count > MAX_DEVICES) return -1;
  atomic_store(&device_count, count);
  return 0;
}

void nccl4j_standin_set_memory(uint64_t bytes) { atomic_store(&memory_bytes, bytes); }
uint64_t device_memory(void) { return atomic_load(&memory_bytes); }
int nccl4j_standin_device_count(void) { return atomic_load(&device_count); }
bool device_valid(int device) { return device >= 0 && device < nccl4j_standin_device_count(); }

cudaError_t device_current(int *device) {
  if (nccl4j_standin_device_count() == 0) return cudaErrorInsufficientDriver;
  *device = device_valid(current) ? current : 0;
  return cudaSuccess;
}

int nccl4j_standin_current_device(void) {
  int device;
  return device_current(&device) == cudaSuccess ? device : -1;
}

int nccl4j_standin_driver(void) { return atomic_load(&driver_version); }

void nccl4j_standin_use_device(int device) {
  if (device < 0) return;
  atomic_store(&contexts[device], true);
  if (device == nccl4j_standin_current_device()) bound = true;
}

int nccl4j_standin_context(int device) { return device_valid(device) ? atomic_load(&contexts[device]) : -1; }

int device_bound(void) {
  int device = nccl4j_standin_current_device();
  return bound && nccl4j_standin_context(device) == 1 ? device : -1;
}

void device_unbind(void) { bound = false; }

void nccl4j_standin_move_to_next_device(void) {
  int device = nccl4j_standin_current_device();
  if (device >= 0) current = (device + 1) % nccl4j_standin_device_count();
}

cudaError_t cudaGetDeviceCount(int *count) {
  ENTER(cudaGetDeviceCount);
  if (!count) RETURN(cudaErrorInvalidValue);
  *count = nccl4j_standin_device_count();
  RETURN(cudaSuccess);
}

cudaError_t cudaGetDevice(int *device) {
  ENTER(cudaGetDevice);
  if (!device) RETURN(cudaErrorInvalidValue);
  RETURN(device_current(device));
}

cudaError_t device_select(int device) {
  if (!device_valid(device)) return cudaErrorInvalidDevice;
  current = device;
  nccl4j_standin_use_device(device);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  ENTER(cudaSetDevice);
  RETURN(device_select(device));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device) {
  ENTER(cudaDeviceGetPCIBusId);
  if (!pciBusId || len < 13) RETURN(cudaErrorInvalidValue);
  if (!device_valid(device)) RETURN(cudaErrorInvalidDevice);
  struct nccl4j_standin_bus_id id = nccl4j_standin_bus_id(device);
  snprintf(pciBusId, (size_t)len, "%04X:%02X:%02X.0", id.domain, id.bus, id.slot);
  RETURN(cudaSuccess);
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId) {
  ENTER(cudaDeviceGetByPCIBusId);
  struct nccl4j_standin_bus_id id;
  if (!device || !pciBusId || !nccl4j_standin_bus_parse(pciBusId, &id)) RETURN(cudaErrorInvalidValue);
  int found = nccl4j_standin_bus_device(&id);
  if (found < 0) RETURN(cudaErrorInvalidDevice);
  *device = found;
  RETURN(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice) {
  ENTER(cudaDeviceCanAccessPeer);
  if (!canAccessPeer) RETURN(cudaErrorInvalidValue);
  if (!device_valid(device) || !device_valid(peerDevice)) RETURN(cudaErrorInvalidDevice);
  *canAccessPeer = device != peerDevice;
  RETURN(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  ENTER(cudaDeviceEnablePeerAccess);
  int device;
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) RETURN(error);
  if (flags != 0) RETURN(cudaErrorInvalidValue);
  if (!device_valid(peerDevice) || peerDevice == device) RETURN(cudaErrorInvalidDevice);
  RETURN(atomic_exchange(&peers[device][peerDevice], true) ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

bool device_accesses_peer(int device, int peer) { return atomic_load(&peers[device][peer]); }

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  ENTER(cudaDeviceDisablePeerAccess);
  int device;
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) RETURN(error);
  if (!device_valid(peerDevice)) RETURN(cudaErrorInvalidDevice);
  RETURN(atomic_exchange(&peers[device][peerDevice], false) ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
  ENTER(cudaDeviceGetStreamPriorityRange);
  if (leastPriority) *leastPriority = 0;
  if (greatestPriority) *greatestPriority = -5;
  RETURN(cudaSuccess);
}

/* The sizes of the stack and of other memory of kernels, which do not exist here. */
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
  (void)value;
  ENTER(cudaDeviceSetLimit);
  RETURN((unsigned)limit <= cudaLimitPersistingL2CacheSize ? cudaSuccess : cudaErrorUnsupportedLimit);
}
