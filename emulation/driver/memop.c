/*
 * Stream memory operations: a stream waits for a value in memory, or writes one. The waits poll, since another process
 * may write the value. A batch is one work item; its operations run in the order given.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct batch {
  unsigned int count;
  CUstreamBatchMemOpParams operations[];
};

/* Compares in the width of the operation, which matters for GEQ: a cyclic comparison. */
static bool satisfied32(uint32_t found, uint32_t value, unsigned int condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return (int32_t)(found - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == value;
    case CU_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
    default: return ~(found | value) != 0;
  }
}

static bool satisfied64(uint64_t found, uint64_t value, unsigned int condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return (int64_t)(found - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == value;
    case CU_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
    default: return ~(found | value) != 0;
  }
}

/* The condition of the flags; a flush of remote writes has nothing to do, since all memory is coherent here. */
static unsigned int condition_of(unsigned int flags) { return flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH; }

static bool satisfied(const CUstreamBatchMemOpParams *o) {
  unsigned int condition = condition_of(o->waitValue.flags);
  if (o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
    const uint32_t *at = (const uint32_t *)o->waitValue.address;
    return satisfied32(__atomic_load_n(at, __ATOMIC_ACQUIRE), o->waitValue.value, condition);
  }
  const uint64_t *at = (const uint64_t *)o->waitValue.address;
  return satisfied64(__atomic_load_n(at, __ATOMIC_ACQUIRE), o->waitValue.value64, condition);
}

static void operation_run(const CUstreamBatchMemOpParams *o) {
  unsigned int polls = 0;
  switch (o->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      while (!satisfied(o)) poll_pause(&polls);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      __atomic_store_n((uint32_t *)o->writeValue.address, o->writeValue.value, __ATOMIC_RELEASE);
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      __atomic_store_n((uint64_t *)o->writeValue.address, o->writeValue.value64, __ATOMIC_RELEASE);
      break;
    default: break; /* a barrier or flush has nothing to add: every wait acquires, every write releases */
  }
}

static cudaError_t batch_finish(void *spec) {
  const struct batch *b = spec;
  for (unsigned int i = 0; i < b->count; i++) operation_run(&b->operations[i]);
  return cudaSuccess;
}

/* The runtime's enumeration of node types has no name for this one. */
static const struct nccl4j_standin_work batch_work = {
    .finish = batch_finish, .release = free, .type = (enum cudaGraphNodeType)CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};

/* ---- checking ---- */

static bool address_valid(CUdeviceptr address, size_t bytes, bool writes) {
  const void *at = (const void *)address;
  if (address == 0 || address % bytes != 0) return false;
  return writes ? nccl4j_standin_writable(at, bytes, -1) : nccl4j_standin_reachable(at, bytes);
}

static bool operation_valid(const CUstreamBatchMemOpParams *o) {
  switch (o->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: /* the values and flags of both have the same places */
      return condition_of(o->waitValue.flags) <= CU_STREAM_WAIT_VALUE_NOR &&
             address_valid(o->waitValue.address, o->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8, false);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return o->writeValue.flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER &&
             address_valid(o->writeValue.address, o->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8, true);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return o->flushRemoteWrites.flags == 0;
    case CU_STREAM_MEM_OP_BARRIER: return o->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
    default: return false;
  }
}

static CUresult enqueue(CUstream stream, unsigned int count, const CUstreamBatchMemOpParams *operations) {
  for (unsigned int i = 0; i < count; i++)
    if (!operation_valid(&operations[i])) return CUDA_ERROR_INVALID_VALUE;
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return CUDA_ERROR_INVALID_HANDLE;
  struct batch *b = malloc(sizeof *b + count * sizeof *operations);
  b->count = count;
  memcpy(b->operations, operations, count * sizeof *operations);
  cudaError_t error = nccl4j_standin_enqueue(s, &batch_work, b);
  object_put(s);
  return driver_result(error);
}

/* All these operations have the same layout, in which a value of 32 bits is the lower half of one of 64. */
static CUresult enqueue_one(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value,
                            unsigned int flags) {
  CUstreamBatchMemOpParams o = {
      .waitValue = {.operation = type, .address = address, .value64 = value, .flags = flags}};
  return enqueue(stream, 1, &o);
}

/* ---- the functions; their signatures are the _v2 of 11.7 ---- */

DRIVER_ENTRY(cuStreamBatchMemOp, 11070)
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                            unsigned int flags) {
  DRIVER_ENTER(cuStreamBatchMemOp);
  if (flags != 0 || count > 255 || (count && !paramArray)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, count, paramArray);
}

DRIVER_ENTRY(cuStreamWaitValue32, 11070)
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  DRIVER_ENTER(cuStreamWaitValue32);
  return enqueue_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

DRIVER_ENTRY(cuStreamWaitValue64, 11070)
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  DRIVER_ENTER(cuStreamWaitValue64);
  return enqueue_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

DRIVER_ENTRY(cuStreamWriteValue32, 11070)
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  DRIVER_ENTER(cuStreamWriteValue32);
  return enqueue_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

DRIVER_ENTRY(cuStreamWriteValue64, 11070)
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  DRIVER_ENTER(cuStreamWriteValue64);
  return enqueue_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}
