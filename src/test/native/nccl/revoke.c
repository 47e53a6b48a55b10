/* Revoke, suspend, resume, memory statistics. */
#include "clique.h"

#include <stdlib.h>

NCCL_FUNCTION(ncclCommRevoke)
NCCL_FUNCTION(ncclCommSuspend)
NCCL_FUNCTION(ncclCommResume)
NCCL_FUNCTION(ncclCommMemStats)

/* ---- revoke ---- */

static void cancel_begin(ncclComm_t comm) {
  pthread_mutex_lock(&comm->clique->lock);
  comm->cancelling = true;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->clique->lock);
}

static void cancel_finish(ncclComm_t comm) {
  pthread_mutex_lock(&comm->clique->lock);
  while (!comm->aborted && comm->executions > 0) pthread_cond_wait(&comm->changed, &comm->clique->lock);
  comm->cancelling = false;
  pthread_mutex_unlock(&comm->clique->lock);
}

void operations_cancel(ncclComm_t comm) {
  cancel_begin(comm);
  cancel_finish(comm);
}

ncclResult_t revoke_begin(ncclComm_t comm) {
  cancel_begin(comm);
  return ncclSuccess;
}

/* Revoking clears the asynchronous error. */
ncclResult_t revoke_finish(ncclComm_t comm) {
  cancel_finish(comm);
  pthread_mutex_lock(&comm->clique->lock);
  comm->failure = ncclSuccess;
  pthread_mutex_unlock(&comm->clique->lock);
  return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t handle, int revokeFlags) {
  ENTER_COLLECTED(ncclCommRevoke);
  if (!handle) return ncclSuccess;
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "CommRevoke", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  pthread_mutex_lock(&comm->clique->lock);
  if (revokeFlags != NCCL_REVOKE_DEFAULT || comm->destroying || comm->finalized || comm->revoked) {
    warn("CommRevoke : flags %d, or a communicator that has been finalized, destroyed or revoked", revokeFlags);
    result = ncclInvalidArgument;
  } else {
    comm->revoked = true;
  }
  pthread_mutex_unlock(&comm->clique->lock);
  if (result == ncclSuccess) return group_submit(job_new(JOB_REVOKE, comm));
  object_put(comm);
  return group_refuse(result);
}

/* ---- suspend and resume: barriers of all ranks ---- */

ncclResult_t barrier_begin(ncclComm_t comm) {
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  comm->barriers++;
  if (!comm->silent) c->barrier_arrivals++;
  clique_wake(c);
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}

/* Needs the clique's lock. */
static ncclResult_t barrier_finish(ncclComm_t comm) {
  struct clique *c = comm->clique;
  while (!comm->aborted && c->barrier_arrivals < comm->barriers * (uint64_t)c->ranks)
    pthread_cond_wait(&comm->changed, &c->lock);
  return comm->aborted ? ncclInternalError : ncclSuccess;
}

static ncclResult_t set_suspended(ncclComm_t comm, bool suspended) {
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  ncclResult_t result = barrier_finish(comm);
  if (result == ncclSuccess && comm->suspended == suspended) {
    warn(suspended ? "MemManager: Already suspended" : "MemManager: Not in suspended state");
    result = ncclInvalidUsage;
  }
  if (result == ncclSuccess) comm->suspended = suspended;
  pthread_mutex_unlock(&c->lock);
  return result;
}

ncclResult_t suspend_finish(ncclComm_t comm) { return set_suspended(comm, true); }
ncclResult_t resume_finish(ncclComm_t comm) { return set_suspended(comm, false); }

ncclResult_t ncclCommSuspend(ncclComm_t handle, int flags) {
  ENTER_COLLECTED(ncclCommSuspend);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "ncclCommSuspend", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  if (flags & NCCL_SUSPEND_MEM) return group_submit(job_new(JOB_SUSPEND, comm));
  object_put(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommResume(ncclComm_t handle) {
  ENTER_COLLECTED(ncclCommResume);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "ncclCommResume", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  return group_submit(job_new(JOB_RESUME, comm));
}

/* ---- statistics: made up ---- */

#define PERSISTENT_BYTES ((uint64_t)3 << 20)
#define BYTES_PER_RANK ((uint64_t)4 << 20)

ncclResult_t ncclCommMemStats(ncclComm_t handle, ncclCommMemStat_t stat, uint64_t *value) {
  ENTER(ncclCommMemStats);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "ncclCommMemStats", &comm);
  if (result != ncclSuccess) return result;
  result = argument_present(value, "ncclCommMemStats", "value");
  uint64_t suspendable = BYTES_PER_RANK * (uint64_t)comm->clique->ranks;
  pthread_mutex_lock(&comm->clique->lock);
  bool suspended = comm->suspended;
  pthread_mutex_unlock(&comm->clique->lock);
  object_put(comm);
  if (result != ncclSuccess) return result;
  switch (stat) {
    case ncclStatGpuMemSuspend: *value = suspendable; return ncclSuccess;
    case ncclStatGpuMemSuspended: *value = suspended; return ncclSuccess;
    case ncclStatGpuMemPersist: *value = PERSISTENT_BYTES; return ncclSuccess;
    case ncclStatGpuMemTotal: *value = suspendable + PERSISTENT_BYTES; return ncclSuccess;
    default: warn("ncclCommMemStats : unknown statistic %d", (int)stat); return ncclInvalidArgument;
  }
}
