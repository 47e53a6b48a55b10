/*
 * The connection set-up of first operations, if nccl4j_standin_connect is on: it happens inside the call, as in the
 * real library when it connects at run time.
 *
 * A first collective waits for the first collective of every rank, a first send to a peer for that peer's first receive
 * from this rank. There is no deadline. Several communicators in one group connect together. A revoke ends the wait
 * with an error for every communicator of the group; the others have then failed and must be aborted. For a
 * non-blocking communicator a thread of the library waits, so an abort ends the wait too.
 */
#include "clique.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_MICROSECONDS 500

static bool connects(const struct job *job) {
  return job->kind == JOB_OPERATION && job->request.function <= RECV && job->comm->clique->ranks > 1;
}

/* ---- links; all need the clique's lock ---- */

static void start_collective_link(ncclComm_t comm) {
  struct clique *c = comm->clique;
  if (comm->collective_link != LINK_NONE) return;
  comm->collective_link = LINK_WAITING;
  if (++c->collectives_waiting < c->ranks) return;
  for (int rank = 0; rank < c->ranks; rank++)
    if (c->members[rank]) c->members[rank]->collective_link = LINK_CONNECTED;
}

static void start_message_link(ncclComm_t comm, int peer, bool sends) {
  enum link *mine = sends ? &comm->send_links[peer] : &comm->receive_links[peer];
  if (peer == comm->rank || *mine != LINK_NONE) return;
  *mine = LINK_WAITING;
  ncclComm_t other = comm->clique->members[peer];
  if (!other) return;
  enum link *theirs = sends ? &other->receive_links[comm->rank] : &other->send_links[comm->rank];
  if (*theirs == LINK_WAITING) *mine = *theirs = LINK_CONNECTED;
}

static void start_link(const struct request *r, ncclComm_t comm) {
  if (comm->silent) return;
  if (r->function == SEND || r->function == RECV) start_message_link(comm, r->peer, r->function == SEND);
  else start_collective_link(comm);
}

static bool connected(ncclComm_t comm) {
  bool all = comm->collective_link != LINK_WAITING;
  for (int peer = 0; peer < comm->clique->ranks; peer++)
    all &= comm->send_links[peer] != LINK_WAITING && comm->receive_links[peer] != LINK_WAITING;
  return all;
}

static void withdraw(ncclComm_t comm) {
  if (comm->collective_link == LINK_WAITING) {
    comm->collective_link = LINK_NONE;
    comm->clique->collectives_waiting--;
  }
  for (int peer = 0; peer < comm->clique->ranks; peer++) {
    if (comm->send_links[peer] == LINK_WAITING) comm->send_links[peer] = LINK_NONE;
    if (comm->receive_links[peer] == LINK_WAITING) comm->receive_links[peer] = LINK_NONE;
  }
}

/* Pitfall 16: the revoke has cleared its flags before the thread looked at them. */
static bool ended(const ncclComm_t comm) {
  return comm->aborted || (comm->revoked && !pitfall_on(16)) || comm->failure != ncclSuccess;
}

/* ---- connecting ---- */

static void begin(struct job *first, bool in_call) {
  for (struct job *job = first; job; job = job->next) {
    if (!connects(job)) continue;
    pthread_mutex_lock(&job->comm->clique->lock);
    job->comm->calls += in_call;
    start_link(&job->request, job->comm);
    pthread_mutex_unlock(&job->comm->clique->lock);
  }
}

static ncclResult_t poll(struct job *first) {
  bool all = true;
  for (struct job *job = first; job; job = job->next) {
    if (!connects(job)) continue;
    pthread_mutex_lock(&job->comm->clique->lock);
    bool over = ended(job->comm);
    all &= connected(job->comm);
    pthread_mutex_unlock(&job->comm->clique->lock);
    if (over) {
      warn("connecting ended: a communicator of the call was revoked or aborted, or has failed");
      return ncclInternalError;
    }
  }
  return all ? ncclSuccess : ncclInProgress;
}

static void end(struct job *first, bool in_call, ncclResult_t result) {
  for (struct job *job = first; job; job = job->next) {
    if (!connects(job)) continue;
    pthread_mutex_lock(&job->comm->clique->lock);
    if (result != ncclSuccess) withdraw(job->comm);
    if (result != ncclSuccess && !ended(job->comm)) job->comm->failure = result;
    job->comm->calls -= in_call;
    pthread_mutex_unlock(&job->comm->clique->lock);
  }
}

ncclResult_t jobs_connect(struct job *first, bool in_call) {
  if (!connects_in_calls()) return ncclSuccess;
  begin(first, in_call);
  ncclResult_t result;
  nccl4j_standin_count(KIND_CONNECTING, 1);
  while ((result = poll(first)) == ncclInProgress) usleep(POLL_MICROSECONDS);
  nccl4j_standin_count(KIND_CONNECTING, -1);
  end(first, in_call, result);
  return result;
}

void check_no_thread_inside(ncclComm_t comm, const char *function) {
  pthread_mutex_lock(&comm->clique->lock);
  int calls = comm->calls;
  pthread_mutex_unlock(&comm->clique->lock);
  if (calls == 0) return;
  fprintf(stderr,
          "nccl4j stand-in: %s frees a communicator while a thread connects inside one of its calls; the real library "
          "would use freed memory\n",
          function);
  abort();
}
