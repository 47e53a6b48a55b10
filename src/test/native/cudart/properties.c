/*
 * Properties and attributes of the devices: those of an H100 as far as NCCL or nccl4j reads them, but without
 * multicast, fabric handles and GPUDirect RDMA, which are not emulated. The name says that there is no GPU.
 */
#include "cudart.h"

#include <cuda.h>

#include <stdio.h>
#include <string.h>

STANDIN_SITE(cudaGetDeviceProperties)
STANDIN_SITE(cudaDeviceGetAttribute)

/* Attributes that are not here are 0. */
static const int attributes[cudaDevAttrMax] = {
    [cudaDevAttrMaxThreadsPerBlock] = 1024,
    [cudaDevAttrMaxBlockDimX] = 1024,
    [cudaDevAttrMaxBlockDimY] = 1024,
    [cudaDevAttrMaxBlockDimZ] = 64,
    [cudaDevAttrMaxGridDimX] = INT_MAX,
    [cudaDevAttrMaxGridDimY] = 65535,
    [cudaDevAttrMaxGridDimZ] = 65535,
    [cudaDevAttrMaxSharedMemoryPerBlock] = 49152,
    [cudaDevAttrTotalConstantMemory] = 65536,
    [cudaDevAttrWarpSize] = 32,
    [cudaDevAttrMaxPitch] = INT_MAX,
    [cudaDevAttrMaxRegistersPerBlock] = 65536,
    [cudaDevAttrTextureAlignment] = 512,
    [cudaDevAttrMultiProcessorCount] = 132,
    [cudaDevAttrCanMapHostMemory] = 1,
    [cudaDevAttrConcurrentKernels] = 1,
    [cudaDevAttrGlobalMemoryBusWidth] = 64,
    [cudaDevAttrMaxThreadsPerMultiProcessor] = 2048,
    [cudaDevAttrAsyncEngineCount] = 3,
    [cudaDevAttrUnifiedAddressing] = 1,
    [cudaDevAttrComputeCapabilityMajor] = 9, /* 9.0 allows float8 reductions */
    [cudaDevAttrComputeCapabilityMinor] = 0,
    [cudaDevAttrStreamPrioritiesSupported] = 1,
    [cudaDevAttrMaxSharedMemoryPerMultiprocessor] = 233472,
    [cudaDevAttrMaxRegistersPerMultiprocessor] = 65536,
    [cudaDevAttrManagedMemory] = 1,
    [cudaDevAttrConcurrentManagedAccess] = 1,
    [cudaDevAttrCooperativeLaunch] = 1,
    [cudaDevAttrMaxSharedMemoryPerBlockOptin] = 232448,
    [cudaDevAttrHostRegisterSupported] = 1,
    [CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 1,
    [cudaDevAttrMaxBlocksPerMultiprocessor] = 32,
    [cudaDevAttrReservedSharedMemoryPerBlock] = 1024,
    [cudaDevAttrMemoryPoolsSupported] = 1,
    [cudaDevAttrHostNumaId] = -1, /* this machine may have no NUMA */
};

cudaError_t device_attribute(int *value, int attribute, int device) {
  if (!value || attribute < cudaDevAttrMaxThreadsPerBlock || attribute >= cudaDevAttrMax) return cudaErrorInvalidValue;
  if (!device_valid(device)) return cudaErrorInvalidDevice;
  struct nccl4j_standin_bus_id id = nccl4j_standin_bus_id(device);
  switch (attribute) {
    case cudaDevAttrPciBusId: *value = (int)id.bus; break;
    case cudaDevAttrPciDeviceId: *value = (int)id.slot; break;
    case cudaDevAttrPciDomainId: *value = (int)id.domain; break;
    default: *value = attributes[attribute];
  }
  return cudaSuccess;
}

void device_uuid(int device, char uuid[16]) {
  memcpy(uuid, "nccl4j stand-in", 15);
  uuid[15] = (char)device;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device) {
  ENTER(cudaDeviceGetAttribute);
  RETURN(device_attribute(value, attr, device));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  ENTER(cudaGetDeviceProperties);
  if (!properties) RETURN(cudaErrorInvalidValue);
  if (!device_valid(device)) RETURN(cudaErrorInvalidDevice);
  const int *of = attributes;
  struct nccl4j_standin_bus_id id = nccl4j_standin_bus_id(device);
  *properties = (struct cudaDeviceProp){
      .totalGlobalMem = device_memory(),
      .sharedMemPerBlock = (size_t)of[cudaDevAttrMaxSharedMemoryPerBlock],
      .regsPerBlock = of[cudaDevAttrMaxRegistersPerBlock],
      .warpSize = of[cudaDevAttrWarpSize],
      .memPitch = (size_t)of[cudaDevAttrMaxPitch],
      .maxThreadsPerBlock = of[cudaDevAttrMaxThreadsPerBlock],
      .maxThreadsDim = {of[cudaDevAttrMaxBlockDimX], of[cudaDevAttrMaxBlockDimY], of[cudaDevAttrMaxBlockDimZ]},
      .maxGridSize = {of[cudaDevAttrMaxGridDimX], of[cudaDevAttrMaxGridDimY], of[cudaDevAttrMaxGridDimZ]},
      .totalConstMem = (size_t)of[cudaDevAttrTotalConstantMemory],
      .major = of[cudaDevAttrComputeCapabilityMajor],
      .minor = of[cudaDevAttrComputeCapabilityMinor],
      .textureAlignment = (size_t)of[cudaDevAttrTextureAlignment],
      .multiProcessorCount = of[cudaDevAttrMultiProcessorCount],
      .canMapHostMemory = of[cudaDevAttrCanMapHostMemory],
      .concurrentKernels = of[cudaDevAttrConcurrentKernels],
      .pciBusID = (int)id.bus,
      .pciDeviceID = (int)id.slot,
      .pciDomainID = (int)id.domain,
      .asyncEngineCount = of[cudaDevAttrAsyncEngineCount],
      .unifiedAddressing = of[cudaDevAttrUnifiedAddressing],
      .memoryBusWidth = of[cudaDevAttrGlobalMemoryBusWidth],
      .maxThreadsPerMultiProcessor = of[cudaDevAttrMaxThreadsPerMultiProcessor],
      .streamPrioritiesSupported = of[cudaDevAttrStreamPrioritiesSupported],
      .sharedMemPerMultiprocessor = (size_t)of[cudaDevAttrMaxSharedMemoryPerMultiprocessor],
      .regsPerMultiprocessor = of[cudaDevAttrMaxRegistersPerMultiprocessor],
      .managedMemory = of[cudaDevAttrManagedMemory],
      .concurrentManagedAccess = of[cudaDevAttrConcurrentManagedAccess],
      .cooperativeLaunch = of[cudaDevAttrCooperativeLaunch],
      .sharedMemPerBlockOptin = (size_t)of[cudaDevAttrMaxSharedMemoryPerBlockOptin],
      .maxBlocksPerMultiProcessor = of[cudaDevAttrMaxBlocksPerMultiprocessor],
      .reservedSharedMemPerBlock = (size_t)of[cudaDevAttrReservedSharedMemoryPerBlock],
      .hostRegisterSupported = of[cudaDevAttrHostRegisterSupported],
      .memoryPoolsSupported = of[cudaDevAttrMemoryPoolsSupported],
  };
  snprintf(properties->name, sizeof properties->name, "nccl4j stand-in (no GPU)");
  device_uuid(device, properties->uuid.bytes);
  RETURN(cudaSuccess);
}
