/* Devices and primary contexts of the driver API. */
#include "driver.h"

/* The handle of a device's primary context is the address of its element. Other contexts are not emulated. */
struct CUctx_st {
  char address_only;
};
static struct CUctx_st contexts[MAX_DEVICES];

DRIVER_ENTRY(cuDeviceGet, 2000)
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  DRIVER_ENTER(cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuDeviceGetAttribute, 2000)
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
  DRIVER_ENTER(cuDeviceGetAttribute);
  return driver_result(device_attribute(pi, (int)attrib, dev));
}

DRIVER_ENTRY(cuDeviceGetUuid, 9020)
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
  DRIVER_ENTER(cuDeviceGetUuid);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  device_uuid(dev, uuid->bytes);
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuCtxGetCurrent, 4000)
CUresult cuCtxGetCurrent(CUcontext *pctx) {
  DRIVER_ENTER(cuCtxGetCurrent);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  int device = device_bound();
  *pctx = device >= 0 ? &contexts[device] : NULL;
  return CUDA_SUCCESS;
}

DRIVER_ENTRY(cuCtxSetCurrent, 4000)
CUresult cuCtxSetCurrent(CUcontext ctx) {
  DRIVER_ENTER(cuCtxSetCurrent);
  if (!ctx) {
    device_unbind();
    return CUDA_SUCCESS;
  }
  for (int device = 0; device < MAX_DEVICES; device++)
    if (ctx == &contexts[device]) return driver_result(device_select(device));
  return CUDA_ERROR_INVALID_CONTEXT;
}

DRIVER_ENTRY(cuCtxGetDevice, 2000)
CUresult cuCtxGetDevice(CUdevice *device) {
  DRIVER_ENTER(cuCtxGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  int bound = device_bound();
  if (bound < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = bound;
  return CUDA_SUCCESS;
}
