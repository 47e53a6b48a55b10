/* Reduction operators: built-in, or created for one communicator (the sum of inputs multiplied by a scalar). */
#include "clique.h"

#include <stdlib.h>
#include <string.h>

NCCL_FUNCTION(ncclRedOpCreatePreMulSum)
NCCL_FUNCTION(ncclRedOpDestroy)

#define PER_COMM 4096 /* handles of different communicators differ, so that a foreign one is detected */

struct redop {
  int handle;
  ncclDataType_t type;
  struct reduction reduction;
  struct redop *next;
};

void redops_free(struct redop *list) {
  while (list) {
    struct redop *next = list->next;
    free(list);
    nccl4j_standin_count(KIND_REDOP, -1);
    list = next;
  }
}

static struct redop **redop_find(ncclComm_t comm, int handle) {
  struct redop **at = &comm->redops;
  while (*at && (*at)->handle != handle) at = &(*at)->next;
  return at;
}

static ncclResult_t create(ncclRedOp_t *op, const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                           ncclComm_t comm) {
  if (argument_present(op, "ncclRedOpCreatePreMulSum", "op") != ncclSuccess) return ncclInvalidArgument;
  if (argument_present(scalar, "ncclRedOpCreatePreMulSum", "scalar") != ncclSuccess) return ncclInvalidArgument;
  if (!type_valid(type)) {
    warn("ncclRedOpCreatePreMulSum : invalid type %d", (int)type);
    return ncclInvalidArgument;
  }
  if (residence != ncclScalarHostImmediate && residence != ncclScalarDevice) {
    warn("ncclRedOpCreatePreMulSum : invalid residence %d", (int)residence);
    return ncclInvalidArgument;
  }
  struct redop *r = calloc(1, sizeof *r);
  r->type = type;
  r->reduction = (struct reduction){.kind = REDUCE_SUM, .scaled = true};
  if (residence == ncclScalarDevice) r->reduction.device_scalar = scalar;
  else memcpy(r->reduction.scalar, scalar, type_size(type));
  pthread_mutex_lock(&comm->clique->lock);
  r->handle = (int)(ncclNumOps + ((comm->ordinal * PER_COMM) & 0x3fffffff)) + comm->redop_count++ % PER_COMM;
  r->next = comm->redops;
  comm->redops = r;
  pthread_mutex_unlock(&comm->clique->lock);
  nccl4j_standin_count(KIND_REDOP, 1);
  *op = (ncclRedOp_t)r->handle;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
  ENTER(ncclRedOpCreatePreMulSum);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "ncclRedOpCreatePreMulSum", &comm);
  if (result != ncclSuccess) return result;
  result = create(op, scalar, datatype, residence, comm);
  object_put(comm);
  return result;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  ENTER(ncclRedOpDestroy);
  if ((int)op >= 0 && (int)op < ncclNumOps) {
    warn("ncclRedOpDestroy : operator is a NCCL builtin.");
    return ncclInvalidArgument;
  }
  if ((int)op < 0) {
    warn("ncclRedOpDestroy : operator is garbage.");
    return ncclInvalidArgument;
  }
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "ncclRedOpDestroy", &comm);
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&comm->clique->lock);
  struct redop **at = redop_find(comm, (int)op), *gone = *at;
  if (gone) *at = gone->next;
  pthread_mutex_unlock(&comm->clique->lock);
  object_put(comm);
  if (!gone) {
    warn("ncclRedOpDestroy : operator unknown to this communicator.");
    return ncclInvalidArgument;
  }
  gone->next = NULL;
  redops_free(gone);
  return ncclSuccess;
}

static ncclResult_t resolve_own(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, const char *function,
                                struct reduction *reduction) {
  pthread_mutex_lock(&comm->clique->lock);
  struct redop *r = *redop_find(comm, (int)op);
  ncclDataType_t made_for = r ? r->type : ncclNumTypes;
  if (r) *reduction = r->reduction;
  pthread_mutex_unlock(&comm->clique->lock);
  if (made_for == ncclNumTypes) {
    warn("%s : reduction operation %d unknown to this communicator", function, (int)op);
    return ncclInvalidArgument;
  }
  if (made_for != type) {
    warn("%s : Data type supplied to user-created reduction operation does not match datatype given to reduction "
         "operation",
         function);
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t redop_resolve(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, const char *function,
                           struct reduction *reduction) {
  *reduction = (struct reduction){.kind = REDUCE_SUM};
  switch ((int)op) {
    case ncclSum: return ncclSuccess;
    case ncclProd: reduction->kind = REDUCE_PROD; return ncclSuccess;
    case ncclMax: reduction->kind = REDUCE_MAX; return ncclSuccess;
    case ncclMin: reduction->kind = REDUCE_MIN; return ncclSuccess;
    case ncclAvg:
      reduction->average = true;
      reduction->scaled = !type_is_integer(type) && comm->clique->ranks > 1;
      if (reduction->scaled) type_reciprocal(type, comm->clique->ranks, reduction->scalar);
      return ncclSuccess;
    default: break;
  }
  if ((int)op < 0) {
    warn("%s : invalid reduction operation %d", function, (int)op);
    return ncclInvalidArgument;
  }
  return resolve_own(comm, op, type, function, reduction);
}
