/*
 * Collectives, send and receive (and the launch of one-sided operations): from the call to the moved bytes.
 *
 * A call is checked and becomes a request. The requests of one communicator in a group become a plan, one work item of
 * a stream. When the stream executes it (at every launch, if it was captured), it posts an operation per request: the
 * k-th collective of every rank enters one slot, the k-th send from a to b is matched with the k-th receive. The last
 * rank to arrive moves the data for all; the others sleep until that is done or their communicator is aborted.
 */
#include "plugins.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

NCCL_FUNCTION(ncclAllReduce)
NCCL_FUNCTION(ncclBroadcast)
NCCL_FUNCTION(ncclBcast)
NCCL_FUNCTION(ncclReduce)
NCCL_FUNCTION(ncclAllGather)
NCCL_FUNCTION(ncclReduceScatter)
NCCL_FUNCTION(ncclAlltoAll)
NCCL_FUNCTION(ncclGather)
NCCL_FUNCTION(ncclScatter)
NCCL_FUNCTION(ncclSend)
NCCL_FUNCTION(ncclRecv)

static const char *const names[] = {"AllReduce", "Broadcast", "Reduce",  "AllGather", "ReduceScatter",
                                    "AlltoAll",  "Gather",    "Scatter", "Send",      "Recv",
                                    "PutSignal", "Signal",    "WaitSignal"};

const char *function_name(enum function function) { return names[function]; }

enum state { WAITING, POSTED, RUNNING, DONE };

struct operation {
  const struct request *request;
  ncclComm_t comm;
  uint64_t number;
  enum state state;
  ncclResult_t result;
  void *kernel[MAX_CHANNELS]; /* the profiler's handles */
  int64_t until; /* if a kernel time is set: when the kernel may end */
  struct operation *next; /* among the messages */
};

struct slot {
  uint64_t number;
  int arrived;
  struct slot *next;
  struct operation *by_rank[];
};

/* ---- moving data ---- */

#define TILE_BYTES 16384

static const char *at(const void *base, size_t elements, size_t size) { return (const char *)base + elements * size; }

/* Returns one rank's input, scaled if the reduction asks for it. */
static const void *operand(struct operation *o, size_t from, size_t count, void *scaled) {
  const struct request *r = o->request;
  const void *input = at(r->send, from, type_size(r->type));
  if (!r->reduction.scaled) return input;
  const void *scalar = r->reduction.device_scalar ? r->reduction.device_scalar : r->reduction.scalar;
  type_scale(r->type, scaled, input, scalar, count);
  return scaled;
}

/* Folds [from, from+count) of every rank's input in rank order. */
static void fold_tile(struct slot *s, int ranks, size_t from, size_t count, void *accumulator) {
  const struct request *r = s->by_rank[0]->request;
  _Alignas(16) char scaled[TILE_BYTES];
  memcpy(accumulator, operand(s->by_rank[0], from, count, scaled), count * type_size(r->type));
  for (int rank = 1; rank < ranks; rank++)
    type_fold(r->type, r->reduction.kind, accumulator, operand(s->by_rank[rank], from, count, scaled), count);
  if (r->reduction.average && type_is_integer(r->type)) type_divide(r->type, accumulator, ranks, count);
}

/* Reduces `count` elements starting at `from` into the start of `to`, or of every rank's output if it is NULL. */
static void reduce(struct slot *s, int ranks, size_t from, size_t count, void *to) {
  size_t size = type_size(s->by_rank[0]->request->type), tile = TILE_BYTES / size;
  _Alignas(16) char accumulator[TILE_BYTES];
  for (size_t done = 0; done < count; done += tile) {
    size_t now = count - done < tile ? count - done : tile;
    fold_tile(s, ranks, from + done, now, accumulator);
    if (to) memcpy((char *)to + done * size, accumulator, now * size);
    for (int rank = 0; !to && rank < ranks; rank++)
      memcpy((char *)s->by_rank[rank]->request->receive + done * size, accumulator, now * size);
  }
}

static void move(void *to, const void *from, size_t bytes) {
  if (to != from) memmove(to, from, bytes);
}

static void collective_run(struct slot *s, int ranks) {
  const struct request *r = s->by_rank[0]->request;
  size_t size = type_size(r->type), count = r->count, bytes = count * size;
  struct operation **rank = s->by_rank;
  switch (r->function) {
    case ALL_REDUCE: reduce(s, ranks, 0, count, NULL); break;
    case REDUCE: reduce(s, ranks, 0, count, rank[r->peer]->request->receive); break;
    case REDUCE_SCATTER:
      for (int q = 0; q < ranks; q++) reduce(s, ranks, (size_t)q * count, count, rank[q]->request->receive);
      break;
    case BROADCAST:
      for (int q = 0; q < ranks; q++) move(rank[q]->request->receive, rank[r->peer]->request->send, bytes);
      break;
    case ALL_GATHER:
      for (int q = 0; q < ranks; q++)
        for (int p = 0; p < ranks; p++)
          move((char *)rank[q]->request->receive + (size_t)p * bytes, rank[p]->request->send, bytes);
      break;
    case ALL_TO_ALL:
      for (int q = 0; q < ranks; q++)
        for (int p = 0; p < ranks; p++)
          move((char *)rank[q]->request->receive + (size_t)p * bytes,
               at(rank[p]->request->send, (size_t)q * count, size), bytes);
      break;
    case GATHER:
      for (int p = 0; p < ranks; p++)
        move((char *)rank[r->peer]->request->receive + (size_t)p * bytes, rank[p]->request->send, bytes);
      break;
    case SCATTER:
      for (int q = 0; q < ranks; q++)
        move(rank[q]->request->receive, at(rank[r->peer]->request->send, (size_t)q * count, size), bytes);
      break;
    default: break;
  }
}

/* ---- sizes ---- */

static size_t input_count(const struct request *r, const ncclComm_t comm) {
  size_t ranks = (size_t)comm->clique->ranks;
  switch (r->function) {
    case REDUCE_SCATTER:
    case ALL_TO_ALL: return r->count * ranks;
    case SCATTER: return comm->rank == r->peer ? r->count * ranks : 0;
    case BROADCAST: return comm->rank == r->peer ? r->count : 0;
    case RECV: return 0;
    default: return r->count;
  }
}

static size_t output_count(const struct request *r, const ncclComm_t comm) {
  size_t ranks = (size_t)comm->clique->ranks;
  switch (r->function) {
    case ALL_GATHER:
    case ALL_TO_ALL: return r->count * ranks;
    case GATHER: return comm->rank == r->peer ? r->count * ranks : 0;
    case REDUCE: return comm->rank == r->peer ? r->count : 0;
    case SEND:
    case PUT_SIGNAL: return 0;
    default: return r->count;
  }
}

/* ---- matching ---- */

static bool reduces(enum function f) { return f == ALL_REDUCE || f == REDUCE || f == REDUCE_SCATTER; }
static bool rooted(enum function f) { return f == BROADCAST || f == REDUCE || f == GATHER || f == SCATTER; }

/* Scalars may differ between ranks, since operators belong to a rank; the computation may not. */
static bool agree(const struct request *a, const struct request *b) {
  if (a->function != b->function || a->count != b->count || a->type != b->type) return false;
  if (rooted(a->function) && a->peer != b->peer) return false;
  const struct reduction *x = &a->reduction, *y = &b->reduction;
  return !reduces(a->function) || (x->kind == y->kind && x->scaled == y->scaled && x->average == y->average);
}

static ncclResult_t disagreement(struct slot *s, int ranks) {
  const struct request *first = s->by_rank[0]->request;
  for (int rank = 1; rank < ranks; rank++) {
    const struct request *other = s->by_rank[rank]->request;
    if (agree(first, other)) continue;
    warn("collective %llu does not match: rank 0 calls %s (count %zu, type %d, root %d), rank %d calls %s (count %zu, "
         "type %d, root %d)",
         (unsigned long long)s->number, names[first->function], first->count, first->type, first->peer, rank,
         names[other->function], other->count, other->type, other->peer);
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Needs the clique's lock. */
static void set_running(struct operation *o) {
  int64_t kernel_time = kernel_nanoseconds();
  o->until = kernel_time > 0 ? now() + kernel_time : 0;
  o->state = RUNNING;
  o->comm->running++;
}

static void set_done(struct operation *o, ncclResult_t result) {
  o->state = DONE;
  o->result = result;
  o->comm->running--;
  if (result != ncclSuccess && o->comm->failure == ncclSuccess) o->comm->failure = result;
  pthread_cond_broadcast(&o->comm->changed);
}

static struct slot **slot_numbered(struct clique *c, uint64_t number) {
  struct slot **at = &c->slots;
  while (*at && (*at)->number != number) at = &(*at)->next;
  if (!*at) {
    struct slot *s = calloc(1, sizeof *s + (size_t)c->ranks * sizeof(struct operation *));
    s->number = number;
    *at = s;
  }
  return at;
}

static void flip(struct slot *s, int ranks) {
  for (int rank = 0; rank < ranks; rank++) {
    const struct request *r = s->by_rank[rank]->request;
    flip_output(rank, r->receive, output_count(r, s->by_rank[rank]->comm) * type_size(r->type));
  }
}

/* Releases the lock while the data is moved: no other thread touches running operations. */
static void post_collective(struct clique *c, struct operation *o) {
  struct slot **at = slot_numbered(c, o->number), *s = *at;
  s->by_rank[o->comm->rank] = o;
  o->state = POSTED;
  if (++s->arrived < c->ranks) return;
  *at = s->next;
  for (int rank = 0; rank < c->ranks; rank++) set_running(s->by_rank[rank]);
  pthread_mutex_unlock(&c->lock);
  ncclResult_t result = disagreement(s, c->ranks);
  if (result == ncclSuccess) {
    collective_run(s, c->ranks);
    flip(s, c->ranks);
  }
  pthread_mutex_lock(&c->lock);
  for (int rank = 0; rank < c->ranks; rank++) set_done(s->by_rank[rank], result);
  free(s);
}

static bool counterparts(const struct operation *a, const struct operation *b) {
  return a->request->function != b->request->function && a->number == b->number &&
         a->request->peer == b->comm->rank && b->request->peer == a->comm->rank;
}

static ncclResult_t message_run(const struct request *send, const struct request *receive) {
  size_t bytes = send->count * type_size(send->type);
  if (bytes != receive->count * type_size(receive->type)) {
    warn("send of %zu elements of type %d meets a receive of %zu elements of type %d", send->count, send->type,
         receive->count, receive->type);
    return ncclInvalidUsage;
  }
  move(receive->receive, send->send, bytes);
  return ncclSuccess;
}

static void post_message(struct clique *c, struct operation *o) {
  struct operation **at = &c->messages;
  while (*at && !counterparts(*at, o)) at = &(*at)->next;
  struct operation *other = *at;
  if (!other) {
    o->state = POSTED;
    o->next = NULL;
    *at = o;
    return;
  }
  *at = other->next;
  set_running(o);
  set_running(other);
  pthread_mutex_unlock(&c->lock);
  bool sends = o->request->function == SEND;
  ncclResult_t result = message_run((sends ? o : other)->request, (sends ? other : o)->request);
  pthread_mutex_lock(&c->lock);
  set_done(o, result);
  set_done(other, result);
}

/* Completes the waits whose signals have arrived. */
static void complete_waits(struct clique *c) {
  for (struct operation **at = &c->waits; *at;) {
    struct operation *o = *at;
    if (signals_take(o->comm, o->request)) {
      *at = o->next;
      set_running(o);
      set_done(o, ncclSuccess);
    } else {
      at = &o->next;
    }
  }
}

static void post_one_sided(struct clique *c, struct operation *o) {
  if (o->request->function == WAIT_SIGNAL) {
    struct operation **at = &c->waits;
    while (*at) at = &(*at)->next;
    o->state = POSTED;
    o->next = NULL;
    *at = o;
  } else {
    set_running(o);
    set_done(o, onesided_run(o->comm, o->request));
  }
  complete_waits(c);
}

static bool one_sided(enum function f) { return f == PUT_SIGNAL || f == SIGNAL || f == WAIT_SIGNAL; }

static bool is_message(const struct operation *o) {
  return o->request->function == SEND || o->request->function == RECV;
}

static void withdraw_listed(struct operation **at, ncclComm_t comm, const struct operation *from,
                            const struct operation *to) {
  while (*at) {
    struct operation *o = *at;
    if (o->comm == comm && (!from || (o >= from && o < to))) {
      o->state = WAITING;
      *at = o->next;
    } else {
      at = &o->next;
    }
  }
}

/* Withdraws the posted operations in [from, to), or all if from is NULL. */
static void withdraw(ncclComm_t comm, const struct operation *from, const struct operation *to) {
  struct clique *c = comm->clique;
  for (struct slot **at = &c->slots; *at;) {
    struct slot *s = *at;
    struct operation *o = s->by_rank[comm->rank];
    if (o && o->comm == comm && (!from || (o >= from && o < to))) {
      o->state = WAITING;
      s->by_rank[comm->rank] = NULL;
      s->arrived--;
    }
    if (s->arrived == 0) {
      *at = s->next;
      free(s);
    } else {
      at = &s->next;
    }
  }
  withdraw_listed(&c->messages, comm, from, to);
  withdraw_listed(&c->waits, comm, from, to);
}

void operations_withdraw(ncclComm_t comm) { withdraw(comm, NULL, NULL); }

void slots_free(struct slot *slots) {
  while (slots) {
    struct slot *next = slots->next;
    free(slots);
    slots = next;
  }
}

/* ---- plans: the work items of streams ---- */

struct plan {
  ncclComm_t comm; /* with a reference */
  bool persistent; /* captured; counted by the communicator until it is released */
  size_t count;
  struct request requests[];
};

struct execution {
  struct plan *plan;
  bool unreachable;
  struct operation operations[];
};

static bool reachable(const struct request *r, const ncclComm_t comm) {
  size_t size = type_size(r->type);
  if (nccl4j_standin_reachable(r->send, input_count(r, comm) * size) &&
      nccl4j_standin_writable(r->receive, output_count(r, comm) * size, -1))
    return true;
  warn("%s : a buffer (send %p, receive %p) is not memory of a device, or is too short", names[r->function], r->send,
       r->receive);
  return false;
}

static uint64_t number_of(ncclComm_t comm, const struct request *r) {
  if (r->function == SEND) return comm->sent[r->peer]++;
  if (r->function == RECV) return comm->received[r->peer]++;
  if (one_sided(r->function)) return 0;
  return comm->collectives++;
}

static void *plan_begin(void *spec) {
  struct plan *plan = spec;
  ncclComm_t comm = plan->comm;
  struct execution *e = calloc(1, sizeof *e + plan->count * sizeof *e->operations);
  e->plan = plan;
  for (size_t i = 0; i < plan->count && !e->unreachable; i++) e->unreachable = !reachable(&plan->requests[i], comm);
  pthread_mutex_lock(&comm->clique->lock);
  comm->executions++;
  for (size_t i = 0; i < plan->count; i++) {
    e->operations[i].request = &plan->requests[i];
    e->operations[i].comm = comm;
    e->operations[i].number = number_of(comm, &plan->requests[i]);
  }
  pthread_mutex_unlock(&comm->clique->lock);
  return e;
}

static bool has_left(const ncclComm_t comm) { return comm->clique->members[comm->rank] != comm; }

static bool may_post(const ncclComm_t comm) {
  return !comm->aborted && !comm->silent && !comm->cancelling && !has_left(comm);
}

/*
 * Collectives and messages of one group have no order in NCCL. Here they are executed in reverse order of the calls, on
 * every rank alike, so that a program that relies on the order gets wrong values every time. They are matched in the
 * order of the calls. One-sided operations keep their order. may_post is checked before each, since posting releases
 * the lock.
 */
static cudaError_t plan_start(void *execution) {
  struct execution *e = execution;
  ncclComm_t comm = e->plan->comm;
  struct clique *c = comm->clique;
  for (size_t i = 0; i < e->plan->count; i++)
    profile_kernel(comm, &e->plan->requests[i], e->operations[i].kernel);
  size_t count = e->unreachable ? 0 : e->plan->count;
  pthread_mutex_lock(&c->lock);
  if (e->unreachable && comm->failure == ncclSuccess) comm->failure = ncclUnhandledCudaError;
  for (size_t i = count; i > 0 && may_post(comm); i--) {
    struct operation *o = &e->operations[i - 1];
    if (is_message(o)) post_message(c, o);
    else if (!one_sided(o->request->function)) post_collective(c, o);
  }
  for (size_t i = 0; i < count && may_post(comm); i++)
    if (one_sided(e->operations[i].request->function)) post_one_sided(c, &e->operations[i]);
  pthread_mutex_unlock(&c->lock);
  return e->unreachable ? cudaErrorIllegalAddress : cudaSuccess;
}

static bool all_done(const struct execution *e) {
  for (size_t i = 0; i < e->plan->count; i++)
    if (e->operations[i].state != DONE) return false;
  return true;
}

static bool ended_early(const ncclComm_t comm) { return has_left(comm) || comm->cancelling; }

/* How late a sleep usually ends at most, in nanoseconds. */
#define SLEEP_OVERRUN 300000

/* Waits until the set kernel time has passed, or the communicator is aborted. Needs the clique's lock. */
static void wait_for_kernel_time(const struct execution *e) {
  ncclComm_t comm = e->plan->comm;
  int64_t until = 0;
  for (size_t i = 0; i < e->plan->count; i++)
    if (e->operations[i].until > until) until = e->operations[i].until;
  int64_t asleep = until - SLEEP_OVERRUN;
  struct timespec deadline = {asleep / INT64_C(1000000000), asleep % INT64_C(1000000000)};
  while (now() < asleep && !ended_early(comm)) pthread_cond_timedwait(&comm->changed, &comm->clique->lock, &deadline);
  if (ended_early(comm)) return;
  pthread_mutex_unlock(&comm->clique->lock);
  while (now() < until) sched_yield();
  pthread_mutex_lock(&comm->clique->lock);
}

static cudaError_t plan_finish(void *execution) {
  struct execution *e = execution;
  ncclComm_t comm = e->plan->comm;
  struct clique *c = comm->clique;
  cudaError_t error = cudaSuccess;
  pthread_mutex_lock(&c->lock);
  while (!all_done(e) && !ended_early(comm)) pthread_cond_wait(&comm->changed, &c->lock);
  wait_for_kernel_time(e);
  for (size_t i = 0; i < e->plan->count; i++)
    if (e->operations[i].result != ncclSuccess) error = cudaErrorLaunchFailure;
  pthread_mutex_unlock(&c->lock);
  return error;
}

/* Withdraws what was posted if finish was not called, because another node of a graph's level failed. */
static void plan_end(void *execution) {
  struct execution *e = execution;
  ncclComm_t comm = e->plan->comm;
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  withdraw(comm, e->operations, e->operations + e->plan->count);
  for (size_t i = 0; i < e->plan->count; i++)
    while (e->operations[i].state == RUNNING) pthread_cond_wait(&comm->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
  for (size_t i = 0; i < e->plan->count; i++) profile_kernel_stop(comm, e->operations[i].kernel);
  pthread_mutex_lock(&c->lock);
  comm->executions--;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&c->lock);
  free(e);
}

static void count_persistent(ncclComm_t comm, int change) {
  pthread_mutex_lock(&comm->clique->lock);
  comm->persistent += change;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->clique->lock);
}

static void plan_release(void *spec) {
  struct plan *plan = spec;
  for (size_t i = 0; i < plan->count; i++) free(plan->requests[i].expected);
  if (plan->persistent) count_persistent(plan->comm, -1);
  object_put(plan->comm);
  free(plan);
}

static const struct nccl4j_standin_work plan_work = {
    .begin = plan_begin, .start = plan_start, .finish = plan_finish, .end = plan_end, .release = plan_release};

/* ---- launching ---- */

static struct plan *plan_of(struct job *first) {
  size_t count = 0;
  for (struct job *job = first; job; job = job->next) count += job->kind == JOB_OPERATION && job->comm == first->comm;
  struct plan *plan = malloc(sizeof *plan + count * sizeof *plan->requests);
  plan->comm = first->comm;
  plan->persistent = false;
  plan->count = 0;
  object_hold(plan->comm);
  for (struct job *job = first; job; job = job->next) {
    if (job->kind != JOB_OPERATION || job->comm != first->comm) continue;
    plan->requests[plan->count++] = job->request;
    job->launched = true;
  }
  for (size_t i = 0; i < plan->count; i++)
    plan->requests[i].launch = profile_launch(plan->comm, &plan->requests[i], (int)plan->count);
  return plan;
}

/* The streams of a communicator in a group are ordered with the first of them, as in the real library. */
static cudaError_t order_streams(struct job *first, bool before) {
  cudaError_t error = cudaSuccess;
  for (struct job *job = first->next; job && error == cudaSuccess; job = job->next) {
    if (job->kind != JOB_OPERATION || job->comm != first->comm || job->stream == first->stream) continue;
    error = before ? nccl4j_standin_order(job->stream, first->stream)
                   : nccl4j_standin_order(first->stream, job->stream);
  }
  return error;
}

static ncclResult_t check_captures(struct job *first) {
  unsigned long long capture = nccl4j_standin_stream_capture(first->stream);
  for (struct job *job = first->next; job; job = job->next) {
    if (job->kind != JOB_OPERATION || job->comm != first->comm) continue;
    if (nccl4j_standin_stream_capture(job->stream) == capture) continue;
    warn("Streams given to a communicator within a NCCL group must either be all uncaptured or all captured by the "
         "same graph.");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

ncclResult_t jobs_launch(struct job *first) {
  pthread_mutex_lock(&first->comm->clique->lock);
  bool aborted = first->comm->aborted;
  pthread_mutex_unlock(&first->comm->clique->lock);
  ncclResult_t result = check_captures(first);
  struct plan *plan = plan_of(first);
  if (aborted || result != ncclSuccess) {
    plan_release(plan);
    return aborted ? ncclInternalError : result;
  }
  cudaError_t error = order_streams(first, true);
  if (error != cudaSuccess) {
    plan_release(plan);
    return cuda_failure(error);
  }
  if (nccl4j_standin_stream_capture(first->stream) != 0) {
    plan->persistent = true;
    count_persistent(plan->comm, 1);
  } else {
    for (size_t i = 0; i < plan->count; i++) ras_count(plan->comm, plan->requests[i].function);
  }
  /* The work may end, and with it the plan, before the call returns. */
  size_t count = plan->count;
  void **launches = malloc(count * sizeof *launches);
  for (size_t i = 0; i < count; i++) launches[i] = plan->requests[i].launch;
  error = nccl4j_standin_enqueue(first->stream, &plan_work, plan);
  for (size_t i = 0; i < count; i++) profile_stop(first->comm, launches[i]);
  free(launches);
  if (error == cudaSuccess) error = order_streams(first, false);
  return cuda_failure(error);
}

/* ---- checking ---- */

static ncclResult_t check_buffer(ncclComm_t comm, const void *buffer, size_t count, const char *function,
                                 const char *name) {
  if (count == 0) return ncclSuccess; /* this rank does not use the buffer */
  ncclResult_t result = argument_present(buffer, function, name);
  if (result != ncclSuccess || !comm->check_pointers) return result;
  int device = nccl4j_standin_memory_device(buffer);
  if (device == -2) {
    warn("%s : %s %p is not a valid pointer", function, name, buffer);
    return ncclInvalidArgument;
  }
  if (device >= 0 && device != comm->device) {
    warn("%s : %s allocated on device %d mismatchs with NCCL device %d", function, name, device, comm->device);
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

static ncclResult_t check_request(ncclComm_t comm, struct request *r, ncclRedOp_t op) {
  const char *function = names[r->function];
  bool message = r->function == SEND || r->function == RECV;
  if ((message || rooted(r->function)) && (r->peer < 0 || r->peer >= comm->clique->ranks)) {
    warn("%s : invalid %s %d (%s should be in the 0..%d range)", function, message ? "peer" : "root", r->peer,
         message ? "peer" : "root", comm->clique->ranks - 1);
    return ncclInvalidArgument;
  }
  if (!type_valid(r->type)) {
    warn("%s : invalid type %d", function, (int)r->type);
    return ncclInvalidArgument;
  }
  ncclResult_t result = ncclSuccess;
  if (reduces(r->function)) result = redop_resolve(comm, op, r->type, function, &r->reduction);
  if (result == ncclSuccess && r->count > SIZE_MAX / 8 / (size_t)comm->clique->ranks) {
    warn("%s : count %zu is more than any memory holds", function, r->count);
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) result = check_buffer(comm, r->send, input_count(r, comm), function, "sendbuff");
  if (result == ncclSuccess) result = check_buffer(comm, r->receive, output_count(r, comm), function, "recvbuff");
  return result;
}

static ncclResult_t check_stream(ncclComm_t comm, cudaStream_t handle, struct nccl4j_standin_stream **stream) {
  *stream = nccl4j_standin_stream_get(handle, comm->device);
  if (*stream && nccl4j_standin_stream_device(*stream) == comm->device) return ncclSuccess;
  if (*stream) nccl4j_standin_stream_put(*stream);
  return cuda_failure(cudaErrorInvalidResourceHandle);
}

static ncclResult_t submit(struct request r, ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream_handle) {
  ncclComm_t comm;
  ncclResult_t result = comm_get_usable(handle, names[r.function], &comm);
  if (result != ncclSuccess) return group_refuse(result);
  if (!exclusive_begin(comm)) {
    object_put(comm);
    return group_refuse(ncclInternalError);
  }
  result = check_request(comm, &r, op);
  exclusive_end(comm);
  if (result == ncclSuccess && r.count > 0) return operation_submit(comm, r, stream_handle, result);
  object_put(comm);
  return group_refuse(result);
}

ncclResult_t operation_submit(ncclComm_t comm, struct request r, cudaStream_t handle, ncclResult_t result) {
  struct nccl4j_standin_stream *stream = NULL;
  if (result == ncclSuccess) result = check_stream(comm, handle, &stream);
  if (result != ncclSuccess) {
    free(r.expected);
    object_put(comm);
    return group_refuse(result);
  }
  r.call = profile_call(comm, &r, handle, nccl4j_standin_stream_capture(stream) != 0);
  profile_stop(comm, r.call);
  struct job *job = calloc(1, sizeof *job);
  *job = (struct job){.kind = JOB_OPERATION, .comm = comm, .request = r, .stream = stream};
  result = group_submit(job);
  device_changes();
  return result;
}

/* ---- the calls ---- */

#define UNLESS_NOOP                                                                                \
  if (atomic_load_explicit(&noop, memory_order_relaxed)) return ncclSuccess

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclAllReduce);
  return submit((struct request){.function = ALL_REDUCE, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype}, op, comm, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclBroadcast);
  return submit((struct request){.function = BROADCAST, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype, .peer = root}, ncclSum, comm, stream);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclBcast);
  return submit((struct request){.function = BROADCAST, .send = buff, .receive = buff, .count = count,
                                 .type = datatype, .peer = root}, ncclSum, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclReduce);
  return submit((struct request){.function = REDUCE, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype, .peer = root}, op, comm, stream);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclAllGather);
  return submit((struct request){.function = ALL_GATHER, .send = sendbuff, .receive = recvbuff, .count = sendcount,
                                 .type = datatype}, ncclSum, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclReduceScatter);
  return submit((struct request){.function = REDUCE_SCATTER, .send = sendbuff, .receive = recvbuff, .count = recvcount,
                                 .type = datatype}, op, comm, stream);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclAlltoAll);
  return submit((struct request){.function = ALL_TO_ALL, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype}, ncclSum, comm, stream);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclGather);
  return submit((struct request){.function = GATHER, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype, .peer = root}, ncclSum, comm, stream);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclScatter);
  return submit((struct request){.function = SCATTER, .send = sendbuff, .receive = recvbuff, .count = count,
                                 .type = datatype, .peer = root}, ncclSum, comm, stream);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclSend);
  return submit((struct request){.function = SEND, .send = sendbuff, .count = count, .type = datatype, .peer = peer},
                ncclSum, comm, stream);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  UNLESS_NOOP;
  ENTER_COLLECTED(ncclRecv);
  return submit((struct request){.function = RECV, .receive = recvbuff, .count = count, .type = datatype, .peer = peer},
                ncclSum, comm, stream);
}
