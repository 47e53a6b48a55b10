/*
 * The first operation of a communicator, when nccl4j_standin_connect is on: it connects inside the call, as the real
 * library does where it connects at run time.
 *
 * A first collective waits for that of every rank, a first send for the peer's first receive from here. There is no
 * deadline. Several communicators in one group connect together. A revoke ends the wait with an error, for every
 * communicator of the group: the others of it have failed, to be aborted. What only a non-blocking communicator has is that
 * a thread of the library waits, so that an abort ends that too.
 */
#include "clique.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_MICROSECONDS 500

static bool connects(const struct job *job) {
  return job->kind == JOB_OPERATION && job->request.function <= RECV && job->comm->clique->ranks > 1;
}

/* ---- asking; under the clique's lock ---- */

static void ask_collective(ncclComm_t comm) {
  struct clique *c = comm->clique;
  if (comm->collective_link != LINK_NONE) return;
  comm->collective_link = LINK_ASKED;
  if (++c->collectives_asked < c->ranks) return;
  for (int rank = 0; rank < c->ranks; rank++)
    if (c->members[rank]) c->members[rank]->collective_link = LINK_CONNECTED;
}

static void ask_message(ncclComm_t comm, int peer, bool sends) {
  enum link *mine = sends ? &comm->send_links[peer] : &comm->receive_links[peer];
  if (peer == comm->rank || *mine != LINK_NONE) return;
  *mine = LINK_ASKED;
  ncclComm_t other = comm->clique->members[peer];
  if (!other) return;
  enum link *theirs = sends ? &other->receive_links[comm->rank] : &other->send_links[comm->rank];
  if (*theirs == LINK_ASKED) *mine = *theirs = LINK_CONNECTED;
}

static void ask(const struct request *r, ncclComm_t comm) {
  if (comm->silent) return;
  if (r->function == SEND || r->function == RECV) ask_message(comm, r->peer, r->function == SEND);
  else ask_collective(comm);
}

static bool connected(ncclComm_t comm) {
  bool all = comm->collective_link != LINK_ASKED;
  for (int peer = 0; peer < comm->clique->ranks; peer++)
    all &= comm->send_links[peer] != LINK_ASKED && comm->receive_links[peer] != LINK_ASKED;
  return all;
}

static void withdraw(ncclComm_t comm) {
  if (comm->collective_link == LINK_ASKED) {
    comm->collective_link = LINK_NONE;
    comm->clique->collectives_asked--;
  }
  for (int peer = 0; peer < comm->clique->ranks; peer++) {
    if (comm->send_links[peer] == LINK_ASKED) comm->send_links[peer] = LINK_NONE;
    if (comm->receive_links[peer] == LINK_ASKED) comm->receive_links[peer] = LINK_NONE;
  }
}

static bool ended(const ncclComm_t comm) { return comm->aborted || comm->revoked || comm->failure != ncclSuccess; }

/* ---- connecting ---- */

static void begin(struct job *first, bool in_call) {
  for (struct job *job = first; job; job = job->next) {
    if (!connects(job)) continue;
    pthread_mutex_lock(&job->comm->clique->lock);
    job->comm->calls += in_call;
    ask(&job->request, job->comm);
    pthread_mutex_unlock(&job->comm->clique->lock);
  }
}

static ncclResult_t look(struct job *first) {
  bool all = true;
  for (struct job *job = first; job; job = job->next) {
    if (!connects(job)) continue;
    pthread_mutex_lock(&job->comm->clique->lock);
    bool over = ended(job->comm);
    all &= connected(job->comm);
    pthread_mutex_unlock(&job->comm->clique->lock);
    if (over) {
      warn("connecting has ended: a communicator of the call was revoked or aborted, or has failed");
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
  while ((result = look(first)) == ncclInProgress) usleep(LOOK_MICROSECONDS);
  end(first, in_call, result);
  return result;
}

void check_nobody_inside(ncclComm_t comm, const char *function) {
  pthread_mutex_lock(&comm->clique->lock);
  int calls = comm->calls;
  pthread_mutex_unlock(&comm->clique->lock);
  if (calls == 0) return;
  fprintf(stderr,
          "nccl4j stand-in: %s frees a communicator while a thread connects inside a call of it; the real library would "
          "use freed memory\n",
          function);
  abort();
}
