/*
 * Declarations shared by the files of the driver API (cu*).
 *
 * The driver's functions are hidden. Programs find them through cuGetProcAddress and cudaGetDriverEntryPointByVersion,
 * which look in the table that DRIVER_ENTRY fills. A function of the driver is written so:
 *
 *     DRIVER_ENTRY(cuDeviceGetAttribute, 2000)
 *     CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
 *       DRIVER_ENTER(cuDeviceGetAttribute);
 *       return driver_result(device_attribute(pi, (int)attrib, dev));
 *     }
 */
#ifndef NCCL4J_STANDIN_DRIVER_H
#define NCCL4J_STANDIN_DRIVER_H

#include "cudart/cudart.h"

#include <cuda.h>

struct driver_entry {
  struct nccl4j_standin_site site; /* calls are counted and can be made to fail, as those of the runtime */
  unsigned int version;            /* the CUDA version that introduced this signature, such as 10020 */
  void *function;
  struct driver_entry *next;
};
void driver_register(struct driver_entry *entry);

/* Adds a function to the table, before main. `symbol` is the name without a version suffix: where cuda.h renames the
 * function (cuMemGetAddressRange is cuMemGetAddressRange_v2), the newer one is meant. */
#define DRIVER_ENTRY(symbol, since)                                                                \
  static struct driver_entry entry_##symbol = {.site.name = #symbol, .version = since};            \
  __attribute__((constructor)) static void register_##symbol(void) {                               \
    entry_##symbol.function = (void *)symbol;                                                      \
    driver_register(&entry_##symbol);                                                              \
  }

/* Begins a function of the driver: counts the call, applies faults, refuses calls from inside a host function. */
#define DRIVER_ENTER(symbol)                                                                       \
  do {                                                                                             \
    CUresult entered = driver_enter(&entry_##symbol);                                              \
    if (entered != CUDA_SUCCESS) return entered;                                                   \
  } while (0)
CUresult driver_enter(struct driver_entry *entry);

/* Returns the driver's code for an error of the runtime. */
CUresult driver_result(cudaError_t error);

#endif
