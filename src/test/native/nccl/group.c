/*
 * Groups: calls between start and end are collected per thread and executed at the outermost end.
 *
 * A refused call poisons the group: its end returns the same result, and nothing of the group is executed. Jobs of
 * non-blocking communicators run on a background thread, and the call returns ncclInProgress.
 */
#include "clique.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

NCCL_FUNCTION(ncclGroupStart)
NCCL_FUNCTION(ncclGroupEnd)
NCCL_FUNCTION(ncclGroupSimulateEnd)

struct batch {
  struct job *first, *last;
};

static _Thread_local struct {
  int depth;
  ncclResult_t error;
  struct batch batch;
} group;

void group_leak_depth(void) { group.depth++; }

ncclResult_t group_refuse(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
  return result;
}

static void batch_free(struct batch batch) {
  for (struct job *job = batch.first; job;) {
    struct job *next = job->next;
    if (job->stream) nccl4j_standin_stream_put(job->stream);
    if (!job->launched) free(job->request.expected);
    if (!job->window_registration) free(job->window); /* else the communicator owns it */
    object_put(job->comm);
    free(job->excluded);
    free(job);
    job = next;
  }
}

/* ---- executing a batch ---- */

static ncclResult_t batch_run(struct batch batch, bool in_call) {
  ncclResult_t result = ncclSuccess;
  for (struct job *job = batch.first; job; job = job->next) {
    ncclResult_t one = job_begin(job);
    if (result == ncclSuccess) result = one;
  }
  for (struct job *job = batch.first; job && result == ncclSuccess; job = job->next) result = job_finish(job);
  if (result == ncclSuccess) result = jobs_connect(batch.first, in_call);
  for (struct job *job = batch.first; job && result == ncclSuccess; job = job->next)
    if (job->kind == JOB_OPERATION && !job->launched) result = jobs_launch(job);
  return result;
}

static struct timespec from_now(int milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += milliseconds / 1000;
  until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  return until;
}

static bool passed(struct timespec until) {
  struct timespec now = from_now(0);
  return now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
}

/* Keeps communicators in progress for a time (negative: indefinitely), until the hold is switched off, or until they are
 * aborted. */
static void hold_back(struct batch batch, int milliseconds) {
  struct timespec until = from_now(milliseconds < 0 ? INT_MAX : milliseconds);
  for (struct job *job = batch.first; job; job = job->next) {
    ncclComm_t comm = job->comm;
    pthread_mutex_lock(&comm->clique->lock);
    while (!comm->aborted && hold_milliseconds() != 0 && !passed(until)) {
      struct timespec next = from_now(1);
      pthread_cond_timedwait(&comm->changed, &comm->clique->lock, &next);
    }
    pthread_mutex_unlock(&comm->clique->lock);
  }
}

/* A blocking communicator is in progress only during its initialisation. */
static void progress(struct batch batch, int change, ncclResult_t result) {
  for (struct job *job = batch.first; job; job = job->next) {
    ncclComm_t comm = job->comm;
    if (job->kind != JOB_INIT && comm->config.blocking != 0) continue;
    pthread_mutex_lock(&comm->clique->lock);
    comm->in_progress += change;
    if (result != ncclSuccess && comm->failure == ncclSuccess) comm->failure = result;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->clique->lock);
  }
}

struct background {
  struct batch batch;
  int hold;
};

static void *in_background(void *argument) {
  struct background b = *(struct background *)argument;
  free(argument);
  hold_back(b.batch, b.hold);
  progress(b.batch, -1, batch_run(b.batch, false));
  batch_free(b.batch);
  return NULL;
}

static ncclResult_t run_in_background(struct batch batch) {
  struct background *b = malloc(sizeof *b);
  *b = (struct background){batch, hold_milliseconds()};
  progress(batch, 1, ncclSuccess);
  if (nccl4j_standin_thread(in_background, b)) return ncclInProgress;
  free(b);
  progress(batch, -1, ncclSystemError);
  batch_free(batch);
  warn("no thread for a non-blocking operation");
  return ncclSystemError;
}

/* The real library makes the caller's device current again after the launch, which creates its context. */
static ncclResult_t run_here(struct batch batch) {
  nccl4j_standin_use_device(nccl4j_standin_current_device());
  progress(batch, 1, ncclSuccess);
  ncclResult_t result = batch_run(batch, true);
  progress(batch, -1, result);
  batch_free(batch);
  return result;
}

/* Refuses kinds of jobs that one group may not mix. Destroy always blocks, and may be mixed with either kind. */
static ncclResult_t check_mix(struct batch batch, bool *blocking) {
  bool has_blocking = false, has_background = false, makes = false, communicates = false;
  for (struct job *job = batch.first; job; job = job->next) {
    if (job->kind == JOB_OPERATION) communicates = true;
    else if (job->kind == JOB_INIT) makes = true;
    if (job->kind == JOB_DESTROY) continue;
    if (job->comm->config.blocking == 0) has_background = true;
    else has_blocking = true;
  }
  *blocking = !has_background;
  if (has_blocking && has_background) {
    warn("Blocking and nonblocking communicators are not allowed in the same group.");
    return ncclInvalidArgument;
  }
  if (makes && communicates) {
    warn("Initialisation and communication are not allowed in the same group.");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

/* Drops the jobs. Communicators whose initialisation is dropped remain, failed, until their owner aborts them. */
static ncclResult_t drop(struct batch batch, ncclResult_t error) {
  for (struct job *job = batch.first; job; job = job->next) {
    pthread_mutex_lock(&job->comm->clique->lock);
    if (job->kind == JOB_INIT && job->comm->failure == ncclSuccess) job->comm->failure = error;
    if (job->kind == JOB_FINALIZE) job->comm->finalized = false;
    if (job->kind == JOB_DESTROY) job->comm->destroying = false;
    pthread_mutex_unlock(&job->comm->clique->lock);
  }
  batch_free(batch);
  return error;
}

static ncclResult_t batch_do(struct batch batch) {
  bool blocking;
  if (!batch.first) return ncclSuccess;
  ncclResult_t result = check_mix(batch, &blocking);
  if (result != ncclSuccess) return drop(batch, result);
  return blocking ? run_here(batch) : run_in_background(batch);
}

/* ---- the calls ---- */

ncclResult_t group_submit(struct job *job) {
  if (group.depth == 0) return batch_do((struct batch){job, job});
  if (group.batch.last) group.batch.last->next = job;
  else group.batch.first = job;
  group.batch.last = job;
  return ncclSuccess;
}

void group_start(void) { group.depth++; }

ncclResult_t group_end(void) {
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t error = group.error;
  struct batch batch = group.batch;
  group.error = ncclSuccess;
  group.batch = (struct batch){NULL, NULL};
  return error == ncclSuccess ? batch_do(batch) : drop(batch, error);
}

ncclResult_t ncclGroupStart(void) {
  ENTER(ncclGroupStart);
  group_start();
  return ncclSuccess;
}

/* Pitfall 13: the end of a group counts as a call of each of its non-blocking communicators. */
static void exclusive_each(void) {
  if (!pitfall_on(13) || group.depth > 1) return;
  for (struct job *job = group.batch.first; job; job = job->next)
    if (job->comm->config.blocking == 0 && exclusive_begin(job->comm)) exclusive_end(job->comm);
}

ncclResult_t ncclGroupEnd(void) {
  int forced;
  bool fails = nccl4j_standin_enter(&site_ncclGroupEnd, &forced);
  if (group.depth == 0) {
    warn("ncclGroupEnd: not in a group call.");
    return ncclInvalidUsage;
  }
  exclusive_each();
  if (fails) group_refuse(forced_failure("ncclGroupEnd", forced));
  ncclResult_t result = group_end();
  return fails ? (ncclResult_t)forced : result;
}

/* ---- simulation ---- */

#define SIM_INFO_MAGIC 0x74685283

/* See README.md: the estimate of the last collective only. Messages and one-sided operations have none. */
static float estimate(struct batch batch) {
  float time = NCCL_UNDEF_FLOAT;
  for (struct job *job = batch.first; job; job = job->next)
    if (job->kind == JOB_OPERATION && job->request.function < SEND)
      time = 10 + (float)(job->request.count * type_size(job->request.type)) / 1024;
  return time;
}

static bool simulable(struct batch batch) {
  for (struct job *job = batch.first; job; job = job->next)
    if (job->kind != JOB_OPERATION || job->comm->config.blocking == 0) return false;
  return true;
}

/* Launches for non-blocking communicators, and without a struct, as in the real library. */
static ncclResult_t simulate(ncclSimInfo_t *info) {
  struct batch batch = group.batch;
  if (!info || group.depth > 1 || group.error != ncclSuccess) return group_end();
  if (info->magic != SIM_INFO_MAGIC) {
    warn("ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    group_refuse(ncclInvalidArgument);
    return group_end();
  }
  if (!simulable(batch)) return group_end();
  bool blocking;
  ncclResult_t result = check_mix(batch, &blocking);
  float time = estimate(batch);
  if (batch.first && result == ncclSuccess) info->estimatedTime = time;
  group.batch = (struct batch){NULL, NULL};
  batch_free(batch);
  group_refuse(result);
  return group_end();
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  int forced;
  bool fails = nccl4j_standin_enter(&site_ncclGroupSimulateEnd, &forced);
  if (group.depth == 0) {
    warn("ncclGroupEnd: not in a group call.");
    return ncclInvalidUsage;
  }
  if (!fails) return simulate(simInfo);
  group_refuse(forced_failure("ncclGroupSimulateEnd", forced));
  group_end();
  return (ncclResult_t)forced;
}
