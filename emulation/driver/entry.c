/*
 * The table of the driver's functions, and the calls that look in it.
 *
 * A function of CUDA that is not emulated is found too, as in a complete driver, but it is a stub that ends the process
 * with a message that names the function. Without that, libraries would silently take the path for old drivers.
 */
#include "driver.h"

#include <string.h>

STANDIN_SITE(cudaGetDriverEntryPoint)
STANDIN_SITE(cudaGetDriverEntryPointByVersion)

static struct driver_entry *entries;

/* Only constructors call this, one after the other. */
void driver_register(struct driver_entry *entry) {
  entry->next = entries;
  entries = entry;
  nccl4j_standin_register(&entry->site);
}

CUresult driver_enter(struct driver_entry *entry) {
  int forced;
  if (nccl4j_standin_enter(&entry->site, &forced)) return (CUresult)forced;
  if (in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  return nccl4j_standin_device_count() == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

/* The two sets of codes have the same numbers, except for the runtime's own ones. */
CUresult driver_result(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection: return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorInsufficientDriver: return CUDA_ERROR_NO_DEVICE;
    case cudaErrorInvalidDeviceFunction: return CUDA_ERROR_INVALID_HANDLE;
    default: return (CUresult)error;
  }
}

/* ---- stubs for functions that are not emulated ---- */

/* NCCL looks up about ten. */
#define MAX_STUBS 32
#define EACH_STUB(M)                                                                               \
  M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)             \
  M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)

static pthread_mutex_t stubs_lock = PTHREAD_MUTEX_INITIALIZER;
static char *stub_names[MAX_STUBS];

/* A stub is called with the arguments of the function it stands for, which it ignores. Each one knows its number. */
#define STUB(n)                                                                                    \
  static void stub_##n(void) { not_emulated("%s", stub_names[n]); }
#define ADDRESS(n) stub_##n,
EACH_STUB(STUB)
static void (*const stubs[MAX_STUBS])(void) = {EACH_STUB(ADDRESS)};

static void *stub_for(const char *name) {
  pthread_mutex_lock(&stubs_lock);
  int stub = 0;
  while (stub < MAX_STUBS && stub_names[stub] && strcmp(stub_names[stub], name) != 0) stub++;
  if (stub < MAX_STUBS && !stub_names[stub]) stub_names[stub] = strdup(name);
  pthread_mutex_unlock(&stubs_lock);
  if (stub < MAX_STUBS) return (void *)stubs[stub];
  not_emulated("a look-up of more than %d missing functions, now %s,", MAX_STUBS, name);
}

/* ---- look-up ---- */

/* Finds the newest signature that is not newer than `version`. */
static CUdriverProcAddressQueryResult look_up(const char *name, unsigned int version, void **function) {
  struct driver_entry *best = NULL;
  bool known = false;
  for (struct driver_entry *e = entries; e; e = e->next) {
    if (strcmp(e->site.name, name) != 0) continue;
    known = true;
    if (e->version <= version && (!best || best->version < e->version)) best = e;
  }
  if (!known && strncmp(name, "cu", 2) == 0) *function = stub_for(name);
  else *function = best ? best->function : NULL;
  if (*function) return CU_GET_PROC_ADDRESS_SUCCESS;
  return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

/* The flags of both APIs have the same values. */
static bool flags_valid(uint64_t flags) {
  if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    not_emulated("a driver function for the per-thread default stream");
  return flags == CU_GET_PROC_ADDRESS_DEFAULT || flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM;
}

DRIVER_ENTRY(cuGetProcAddress, 12000)
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *symbolStatus) {
  DRIVER_ENTER(cuGetProcAddress);
  if (!symbol || !pfn || !flags_valid(flags)) return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult result = look_up(symbol, (unsigned int)cudaVersion, pfn);
  if (symbolStatus) *symbolStatus = result;
  return CUDA_SUCCESS; /* also for a function that does not exist, which is then NULL */
}

static cudaError_t entry_point(const char *symbol, void **function, unsigned int version, unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *status) {
  if (!symbol || !function || !flags_valid(flags)) return cudaErrorInvalidValue;
  CUdriverProcAddressQueryResult result = look_up(symbol, version, function);
  if (status) *status = (enum cudaDriverEntryPointQueryResult)result; /* the two enumerations have the same values */
  return cudaSuccess; /* also for a function that does not exist, which is then NULL */
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **funcPtr, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *driverStatus) {
  ENTER(cudaGetDriverEntryPoint);
  RETURN(entry_point(symbol, funcPtr, CUDART_VERSION, flags, driverStatus));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr, unsigned int cudaVersion,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus) {
  ENTER(cudaGetDriverEntryPointByVersion);
  RETURN(entry_point(symbol, funcPtr, cudaVersion, flags, driverStatus));
}
