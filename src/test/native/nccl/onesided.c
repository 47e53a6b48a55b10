/*
 * One-sided operations: a rank writes into a peer's window and signals it; the peer waits for signals.
 *
 * Only a wait for signals waits for a peer. Data is moved when the sender's stream reaches the put, under the clique's
 * lock, so the signal never arrives before the data.
 */
#include "clique.h"

#include <stdlib.h>
#include <string.h>

NCCL_FUNCTION(ncclPutSignal)
NCCL_FUNCTION(ncclSignal)
NCCL_FUNCTION(ncclWaitSignal)

/* ---- execution in the stream; needs the clique's lock ---- */

static ncclResult_t put(ncclComm_t comm, ncclComm_t peer, const struct request *r) {
  size_t bytes = r->count * type_size(r->type);
  struct ncclWindow_vidmem *own = window_of(comm, r->window);
  struct ncclWindow_vidmem *theirs = own ? window_numbered(peer, own->number) : NULL;
  if (!theirs || bytes > theirs->bytes || r->offset > theirs->bytes - bytes ||
      !nccl4j_standin_writable((char *)theirs->base + r->offset, bytes, -1)) {
    warn("PutSignal : %zu bytes at offset %zu do not lie in a window of rank %d", bytes, r->offset, r->peer);
    return ncclUnhandledCudaError;
  }
  memmove((char *)theirs->base + r->offset, r->send, bytes);
  return ncclSuccess;
}

ncclResult_t onesided_run(ncclComm_t comm, const struct request *r) {
  ncclComm_t peer = comm->clique->members[r->peer];
  if (!peer) return ncclSuccess; /* the peer has left: no wait needs the signal */
  ncclResult_t result = r->function == PUT_SIGNAL ? put(comm, peer, r) : ncclSuccess;
  if (result == ncclSuccess) peer->signals[comm->rank]++;
  return result;
}

bool signals_take(ncclComm_t comm, const struct request *r) {
  int ranks = comm->clique->ranks;
  for (int rank = 0; rank < ranks; rank++)
    if (comm->signals[rank] < r->expected[rank]) return false;
  for (int rank = 0; rank < ranks; rank++) comm->signals[rank] -= r->expected[rank];
  return true;
}

/* ---- the calls ---- */

static ncclResult_t zero(const char *function, const char *name, int value) {
  if (value == 0) return ncclSuccess;
  warn("%s : %s %d is invalid (must be 0)", function, name, value);
  return ncclInvalidArgument;
}

static ncclResult_t check_peer(ncclComm_t comm, const char *function, int peer) {
  if (peer >= 0 && peer < comm->clique->ranks) return ncclSuccess;
  warn("%s : invalid root %d (root should be in the 0..%d range)", function, peer, comm->clique->ranks);
  return ncclInvalidArgument;
}

static ncclResult_t check_support(void) {
  if (windows_supported()) return ncclSuccess;
  warn("One sided RMA: host RMA is not supported in this communicator.");
  return ncclInvalidArgument;
}

static ncclResult_t check_put(ncclComm_t comm, const struct request *r) {
  ncclResult_t result = argument_present(r->window, "ncclPutSignal", "peerWin");
  if (result == ncclSuccess) result = argument_present(r->send, "ncclPutSignal", "srcBuff");
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&comm->clique->lock);
  bool known = window_of(comm, r->window) != NULL;
  struct ncclWindow_vidmem *source = window_around(comm, r->send);
  bool symmetric = source && source->flags & NCCL_WIN_COLL_SYMMETRIC;
  pthread_mutex_unlock(&comm->clique->lock);
  if (!known) {
    warn("Device object does not exist in shadow pool.");
    return ncclInternalError;
  }
  if (symmetric) return ncclSuccess;
  warn("ncclPutSignal: srcWinHost is not in a valid symmetric window");
  return ncclInvalidArgument;
}

static ncclResult_t send_one_sided(struct request r, int sigIdx, int ctx, unsigned int flags, ncclComm_t handle,
                                   cudaStream_t stream, const char *function) {
  ncclComm_t comm;
  ncclResult_t result = comm_get_usable(handle, function, &comm);
  if (result != ncclSuccess) return group_refuse(result);
  result = check_peer(comm, function, r.peer);
  if (result == ncclSuccess && !type_valid(r.type)) {
    warn("%s : invalid type %d", function, (int)r.type);
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) result = check_support();
  if (result == ncclSuccess) result = zero(function, "Context", ctx);
  if (result == ncclSuccess) result = zero(function, "Signal index", sigIdx);
  if (result == ncclSuccess) result = zero(function, "Flags", (int)flags);
  if (result == ncclSuccess && r.function == PUT_SIGNAL) result = check_put(comm, &r);
  return operation_submit(comm, r, stream, result);
}

ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                           ncclComm_t comm, cudaStream_t stream) {
  ENTER_COLLECTED(ncclPutSignal);
  return send_one_sided((struct request){.function = PUT_SIGNAL, .send = localbuff, .count = count, .type = datatype,
                                         .peer = peer, .window = peerWin, .offset = peerWinOffset},
                        sigIdx, ctx, flags, comm, stream, "PutSignal");
}

ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  ENTER_COLLECTED(ncclSignal);
  return send_one_sided((struct request){.function = SIGNAL, .type = ncclInt8, .peer = peer}, sigIdx, ctx, flags, comm,
                        stream, "Signal");
}

static ncclResult_t check_descriptor(ncclComm_t comm, const ncclWaitSignalDesc_t *d) {
  if (d->opCnt <= 0) {
    warn("ncclWaitSignal: a descriptor has invalid opCnt %d", d->opCnt);
    return ncclInvalidArgument;
  }
  ncclResult_t result = check_peer(comm, "WaitSignal", d->peer); /* the real library does not check it */
  if (result == ncclSuccess) result = zero("WaitSignal", "Signal index", d->sigIdx);
  return result == ncclSuccess ? zero("WaitSignal", "Context", d->ctx) : result;
}

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t handle, cudaStream_t stream) {
  ENTER_COLLECTED(ncclWaitSignal);
  ncclComm_t comm;
  ncclResult_t result = comm_get_usable(handle, "WaitSignal", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  result = check_support();
  if (result == ncclSuccess && (nDesc <= 0 || !signalDescs)) {
    warn("ncclWaitSignal: invalid arguments");
    result = ncclInvalidArgument;
  }
  for (int i = 0; i < nDesc && result == ncclSuccess; i++) result = check_descriptor(comm, &signalDescs[i]);
  struct request r = {.function = WAIT_SIGNAL, .type = ncclInt32};
  r.expected = calloc((size_t)comm->clique->ranks, sizeof *r.expected);
  for (int i = 0; i < nDesc && result == ncclSuccess; i++)
    r.expected[signalDescs[i].peer] += (uint64_t)signalDescs[i].opCnt;
  return operation_submit(comm, r, stream, result);
}
