/*
 * The functions of nccl.h that the stand-in does not simulate yet: defined, so that every bound symbol resolves, and
 * answering that they are not.
 */
#include "clique.h"

#define NOT_SIMULATED(function)                                                                    \
  do {                                                                                             \
    ENTER(function);                                                                               \
    warn("%s is not simulated yet", #function);                                                    \
    return ncclInvalidUsage;                                                                       \
  } while (0)

/* Arguments are of no use here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

NCCL_FUNCTION(ncclCommWindowRegister)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags) {
  NOT_SIMULATED(ncclCommWindowRegister);
}

NCCL_FUNCTION(ncclCommWindowDeregister)
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  NOT_SIMULATED(ncclCommWindowDeregister);
}

NCCL_FUNCTION(ncclWinGetUserPtr)
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr) {
  NOT_SIMULATED(ncclWinGetUserPtr);
}

NCCL_FUNCTION(ncclPutSignal)
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t
                           peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream) {
  NOT_SIMULATED(ncclPutSignal);
}

NCCL_FUNCTION(ncclSignal)
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  NOT_SIMULATED(ncclSignal);
}

NCCL_FUNCTION(ncclWaitSignal)
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream) {
  NOT_SIMULATED(ncclWaitSignal);
}

NCCL_FUNCTION(ncclGroupSimulateEnd)
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  NOT_SIMULATED(ncclGroupSimulateEnd);
}

NCCL_FUNCTION(ncclParamBind)
ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
  NOT_SIMULATED(ncclParamBind);
}

NCCL_FUNCTION(ncclParamGetI8)
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out) {
  NOT_SIMULATED(ncclParamGetI8);
}

NCCL_FUNCTION(ncclParamGetI16)
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out) {
  NOT_SIMULATED(ncclParamGetI16);
}

NCCL_FUNCTION(ncclParamGetI32)
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out) {
  NOT_SIMULATED(ncclParamGetI32);
}

NCCL_FUNCTION(ncclParamGetI64)
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out) {
  NOT_SIMULATED(ncclParamGetI64);
}

NCCL_FUNCTION(ncclParamGetU8)
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out) {
  NOT_SIMULATED(ncclParamGetU8);
}

NCCL_FUNCTION(ncclParamGetU16)
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out) {
  NOT_SIMULATED(ncclParamGetU16);
}

NCCL_FUNCTION(ncclParamGetU32)
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out) {
  NOT_SIMULATED(ncclParamGetU32);
}

NCCL_FUNCTION(ncclParamGetU64)
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out) {
  NOT_SIMULATED(ncclParamGetU64);
}

NCCL_FUNCTION(ncclParamGetStr)
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out) {
  NOT_SIMULATED(ncclParamGetStr);
}

NCCL_FUNCTION(ncclParamGet)
ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  NOT_SIMULATED(ncclParamGet);
}

NCCL_FUNCTION(ncclParamGetParameter)
ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen) {
  NOT_SIMULATED(ncclParamGetParameter);
}

NCCL_FUNCTION(ncclParamGetAllParameterKeys)
ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
  NOT_SIMULATED(ncclParamGetAllParameterKeys);
}

NCCL_FUNCTION(ncclParamDumpAll)
void ncclParamDumpAll(void) {
  int forced;
  nccl4j_standin_enter(&site_ncclParamDumpAll, &forced);
  warn("%s is not simulated yet", "ncclParamDumpAll");
}
