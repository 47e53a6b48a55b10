/*
 * Streams: each has a queue and a thread, so that enqueued work runs asynchronously.
 *
 * The worker starts with the first work item and ends when the stream is destroyed and drained. It polls, with pauses,
 * only for kernels and for values in memory. Records and waits that nothing can delay need no work item.
 *
 * The legacy stream of a device is ordered with the device's blocking streams, in both directions, by completions
 * enqueued under one lock: enqueueing has a total order, so waits cannot form a cycle.
 */
#include "cudart.h"

#include <stdlib.h>

STANDIN_SITE(cudaStreamCreate)
STANDIN_SITE(cudaStreamCreateWithFlags)
STANDIN_SITE(cudaStreamCreateWithPriority)
STANDIN_SITE(cudaStreamDestroy)
STANDIN_SITE(cudaStreamQuery)
STANDIN_SITE(cudaStreamSynchronize)
STANDIN_SITE(cudaStreamGetFlags)
STANDIN_SITE(cudaStreamGetPriority)
STANDIN_SITE(cudaStreamGetDevice)
STANDIN_SITE(cudaStreamGetId)
STANDIN_SITE(cudaDeviceSynchronize)

struct item {
  const struct nccl4j_standin_work *work;
  void *spec, *execution;
  struct item *next;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static stream_t *streams;
static stream_t *legacy_streams[MAX_DEVICES];
static _Atomic unsigned long long last_id;
static atomic_int queue_length; /* 0: unlimited */

_Thread_local cudaError_t stream_error;

/* ---- completions as work ---- */

static cudaError_t signal_start(void *completion) {
  completion_signal(completion, stream_error);
  return cudaSuccess;
}
static cudaError_t wait_finish(void *completion) { return completion_wait(completion); }
static cudaError_t wait_regardless(void *completion) {
  completion_wait(completion);
  return cudaSuccess;
}
static void completion_release(void *completion) { completion_put(completion); }

static const struct nccl4j_standin_work signal_work = {
    .start = signal_start, .release = completion_release, .always = true};
static const struct nccl4j_standin_work wait_work = {.finish = wait_finish, .release = completion_release};
/* A failed legacy stream cannot be destroyed, so the failure of another stream is not passed on to it. */
static const struct nccl4j_standin_work wait_regardless_work = {
    .finish = wait_regardless, .release = completion_release};
static const struct nccl4j_standin_work nothing_work = {.always = true};

/* ---- the worker ---- */

static void item_free(struct item *i) {
  if (i->work->end) i->work->end(i->execution);
  if (i->work->release) i->work->release(i->spec);
  free(i);
}

static cudaError_t item_run(struct item *i, cudaError_t failed) {
  cudaError_t error = cudaSuccess;
  stream_error = failed;
  if (failed == cudaSuccess || i->work->always) {
    if (i->work->start) error = i->work->start(i->execution);
    if (error == cudaSuccess && i->work->finish) error = i->work->finish(i->execution);
  }
  return error;
}

static void *worker(void *argument) {
  stream_t *s = argument;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->head && !s->closing) pthread_cond_wait(&s->more, &s->lock);
    struct item *i = s->head;
    if (!i) break;
    s->head = i->next;
    if (!s->head) s->tail = NULL;
    cudaError_t failed = s->error;
    pthread_mutex_unlock(&s->lock);
    cudaError_t error = item_run(i, failed);
    item_free(i);
    pthread_mutex_lock(&s->lock);
    if (error != cudaSuccess && s->error == cudaSuccess) s->error = error;
    s->completed++;
    if (s->waiters) pthread_cond_broadcast(&s->progress);
  }
  s->working = false;
  pthread_mutex_unlock(&s->lock);
  object_put(s);
  return NULL;
}

/* Takes the item only if it succeeds. */
static cudaError_t push_item(stream_t *s, struct item *i) {
  pthread_mutex_lock(&s->lock);
  if (!s->working) {
    object_hold(s);
    s->working = nccl4j_standin_thread(worker, s);
    if (!s->working) {
      pthread_mutex_unlock(&s->lock);
      object_put(s);
      return cudaErrorMemoryAllocation;
    }
  }
  if (s->tail) s->tail->next = i;
  else s->head = i;
  s->tail = i;
  s->submitted++;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  return cudaSuccess;
}

static cudaError_t push(stream_t *s, const struct nccl4j_standin_work *work, void *spec, void *execution) {
  struct item *i = malloc(sizeof *i);
  *i = (struct item){work, spec, execution, NULL};
  cudaError_t error = push_item(s, i);
  if (error != cudaSuccess) item_free(i);
  return error;
}

static bool pending(stream_t *s) {
  pthread_mutex_lock(&s->lock);
  bool is = s->submitted != s->completed;
  pthread_mutex_unlock(&s->lock);
  return is;
}

static bool blocking(const stream_t *s) { return !s->legacy && !(s->flags & cudaStreamNonBlocking); }

/* Needs streams_lock. */
static cudaError_t push_order(stream_t *earlier, stream_t *later, const struct nccl4j_standin_work *wait) {
  struct completion *c = completion_new();
  completion_hold(c);
  cudaError_t error = push(earlier, &signal_work, c, c);
  if (error == cudaSuccess) return push(later, wait, c, c);
  completion_put(c);
  return error;
}

static cudaError_t push_legacy_order(stream_t *s) {
  cudaError_t error = cudaSuccess;
  if (s->legacy) {
    for (stream_t *b = streams; b && error == cudaSuccess; b = b->next)
      if (b->device == s->device && blocking(b) && pending(b)) error = push_order(b, s, &wait_regardless_work);
  } else if (blocking(s)) {
    stream_t *legacy = legacy_streams[s->device];
    if (legacy && pending(legacy)) error = push_order(legacy, s, &wait_regardless_work);
  }
  return error;
}

/* A launch blocks while its stream's queue is full. */
static void wait_for_room(stream_t *s) {
  uint64_t most = (uint64_t)atomic_load(&queue_length);
  if (most == 0) return;
  pthread_mutex_lock(&s->lock);
  s->waiters++;
  while (s->submitted - s->completed >= most) pthread_cond_wait(&s->progress, &s->lock);
  s->waiters--;
  pthread_mutex_unlock(&s->lock);
}

cudaError_t nccl4j_standin_enqueue(stream_t *s, const struct nccl4j_standin_work *work, void *spec) {
  if (atomic_load(&captures_active)) {
    bool captured;
    cudaError_t error = capture_enqueue(s, work, spec, &captured);
    if (captured || error != cudaSuccess) return error;
  }
  wait_for_room(s);
  struct item *i = malloc(sizeof *i);
  pthread_mutex_lock(&streams_lock); /* which begin may not take: executions begin in the order of the queue */
  cudaError_t error = push_legacy_order(s);
  *i = (struct item){work, spec, work->begin ? work->begin(spec) : spec, NULL};
  if (error == cudaSuccess) error = push_item(s, i);
  pthread_mutex_unlock(&streams_lock);
  if (error != cudaSuccess) item_free(i); /* may wait for another stream, which must not need the lock */
  return error;
}

cudaError_t nccl4j_standin_order(stream_t *earlier, stream_t *later) {
  if (earlier == later) return cudaSuccess;
  if (atomic_load(&captures_active)) {
    bool captured;
    cudaError_t error = capture_order(earlier, later, &captured);
    if (captured || error != cudaSuccess) return error;
  }
  pthread_mutex_lock(&streams_lock);
  cudaError_t error = pending(earlier) ? push_order(earlier, later, &wait_work) : cudaSuccess;
  pthread_mutex_unlock(&streams_lock);
  return error;
}

/* Whether the stream has work; for a legacy stream, also the blocking streams of the device. Needs streams_lock. */
static bool pending_with_blocking(stream_t *s) {
  bool is = pending(s);
  for (stream_t *b = streams; b && s->legacy && !is; b = b->next)
    is = b->device == s->device && blocking(b) && pending(b);
  return is;
}

bool stream_idle(stream_t *s) {
  pthread_mutex_lock(&streams_lock);
  stream_t *legacy = blocking(s) ? legacy_streams[s->device] : NULL;
  bool idle = !pending_with_blocking(s) && !(legacy && pending(legacy));
  pthread_mutex_unlock(&streams_lock);
  pthread_mutex_lock(&s->lock);
  idle = idle && s->error == cudaSuccess;
  pthread_mutex_unlock(&s->lock);
  return idle;
}

void stream_mark(stream_t *s, struct completion *c) {
  if (stream_idle(s)) {
    completion_signal(c, cudaSuccess);
    return;
  }
  completion_hold(c);
  cudaError_t error = nccl4j_standin_enqueue(s, &signal_work, c);
  if (error != cudaSuccess) completion_signal(c, error);
}

cudaError_t stream_wait_for(stream_t *s, struct completion *c) {
  if (completion_reached(c)) return cudaSuccess;
  completion_hold(c);
  return nccl4j_standin_enqueue(s, &wait_work, c);
}

/* ---- waiting for pending work without blocking the caller ---- */

struct deferred_call {
  atomic_int marks;
  void (*then)(void *);
  void *argument;
};

static void deferred_call_drop(struct deferred_call *f) {
  if (atomic_fetch_sub(&f->marks, 1) > 1) return;
  f->then(f->argument);
  free(f);
}
static void deferred_call_release(void *deferred_call) { deferred_call_drop(deferred_call); }
static const struct nccl4j_standin_work deferred_call_work = {.release = deferred_call_release, .always = true};

void streams_after_pending(void (*then)(void *), void *argument) {
  struct deferred_call *f = malloc(sizeof *f);
  *f = (struct deferred_call){1, then, argument};
  pthread_mutex_lock(&streams_lock);
  for (stream_t *s = streams; s; s = s->next) {
    if (!pending(s)) continue;
    atomic_fetch_add(&f->marks, 1);
    push(s, &deferred_call_work, f, NULL); /* the item releases its mark, pushed or not */
  }
  pthread_mutex_unlock(&streams_lock);
  deferred_call_drop(f);
}

/* ---- creating and destroying ---- */

static void stream_destroy(void *object) {
  stream_t *s = object;
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->more);
  pthread_cond_destroy(&s->progress);
  free(s->frontier_nodes);
  free(s->frontier_data);
  free(s);
}

/* The list has its own reference, so that a thread that walks it may take another. */
static void unlist(stream_t *s) {
  pthread_mutex_lock(&streams_lock);
  if (s->next) s->next->previous = s->previous;
  if (s->previous) s->previous->next = s->next;
  else streams = s->next;
  pthread_mutex_unlock(&streams_lock);
  object_put(s);
}

static void close_when_drained(void *stream) { unlist(stream); }

static stream_t *stream_new(int device, unsigned int flags, int priority) {
  stream_t *s = calloc(1, sizeof *s);
  s->device = device;
  s->flags = flags;
  s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  s->id = atomic_fetch_add(&last_id, 1) + 1;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->more, NULL);
  pthread_cond_init(&s->progress, NULL);
  return s;
}

/* Needs streams_lock. */
static void enlist(stream_t *s) {
  object_hold(s);
  s->next = streams;
  if (streams) streams->previous = s;
  streams = s;
}

static void stream_start(stream_t *s) {
  pthread_mutex_lock(&streams_lock);
  enlist(s);
  pthread_mutex_unlock(&streams_lock);
}

static const struct nccl4j_standin_work drained_work = {.release = close_when_drained, .always = true};

/* Lets the stream end when it has drained. Takes the caller's reference. */
static void stream_end(stream_t *s) {
  capture_stream_gone(s);
  pthread_mutex_lock(&s->lock);
  bool idle = !s->working;
  if (idle) s->closing = true;
  pthread_mutex_unlock(&s->lock);
  if (idle) {
    unlist(s);
  } else { /* stays listed while it drains: its work still counts as pending */
    push(s, &drained_work, s, NULL);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
  }
  object_put(s);
}

static cudaError_t stream_create(cudaStream_t *stream, unsigned int flags, int priority) {
  int device;
  if (!stream || (flags & ~(unsigned)cudaStreamNonBlocking)) return cudaErrorInvalidValue;
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) return error;
  stream_t *s = stream_new(device, flags, priority);
  object_add(s, KIND_STREAM, stream_destroy);
  stream_start(s);
  *stream = (cudaStream_t)s;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  ENTER(cudaStreamCreate);
  RETURN(stream_create(stream, cudaStreamDefault, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  ENTER(cudaStreamCreateWithFlags);
  RETURN(stream_create(stream, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  ENTER(cudaStreamCreateWithPriority);
  RETURN(stream_create(stream, flags, priority));
}

static bool stream_is_handle_default(cudaStream_t handle) {
  return handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER(cudaStreamDestroy);
  if (stream_is_handle_default(stream)) RETURN(cudaErrorInvalidResourceHandle);
  if (!object_retire(stream, KIND_STREAM)) RETURN(cudaErrorInvalidResourceHandle);
  stream_end((stream_t *)stream);
  RETURN(cudaSuccess);
}

/* ---- the default streams ---- */

static stream_t *legacy_of(int device) {
  pthread_mutex_lock(&streams_lock);
  stream_t *s = legacy_streams[device];
  if (!s) {
    s = stream_new(device, cudaStreamDefault, 0);
    atomic_init(&s->object.references, 1);
    s->object.kind = KIND_STREAM;
    s->object.destroy = stream_destroy;
    s->legacy = true;
    enlist(s);
    legacy_streams[device] = s;
  }
  object_hold(s);
  pthread_mutex_unlock(&streams_lock);
  return s;
}

static pthread_key_t own_streams_key;
static pthread_once_t own_streams_once = PTHREAD_ONCE_INIT;

static void own_streams_end(void *array) {
  stream_t **own = array;
  for (int d = 0; d < MAX_DEVICES; d++)
    if (own[d]) stream_end(own[d]);
  free(own);
}
static void own_streams_key_make(void) { pthread_key_create(&own_streams_key, own_streams_end); }

static stream_t *per_thread_of(int device) {
  pthread_once(&own_streams_once, own_streams_key_make);
  stream_t **own = pthread_getspecific(own_streams_key);
  if (!own) {
    own = calloc(MAX_DEVICES, sizeof *own);
    pthread_setspecific(own_streams_key, own);
  }
  if (!own[device]) {
    stream_t *s = stream_new(device, cudaStreamDefault, 0);
    atomic_init(&s->object.references, 1);
    s->object.kind = KIND_STREAM;
    s->object.destroy = stream_destroy;
    s->owned_by_thread = true;
    stream_start(s);
    own[device] = s;
  }
  object_hold(own[device]);
  return own[device];
}

stream_t *nccl4j_standin_stream_get(cudaStream_t handle, int device) {
  if (!stream_is_handle_default(handle)) return object_get(handle, KIND_STREAM);
  if (!device_valid(device)) return NULL;
  return handle == cudaStreamPerThread ? per_thread_of(device) : legacy_of(device);
}

void nccl4j_standin_stream_put(stream_t *stream) { object_put(stream); }
int nccl4j_standin_stream_device(const stream_t *stream) { return stream->device; }

/* ---- queries and waits ---- */

static cudaError_t wait_until_now(stream_t *s) {
  pthread_mutex_lock(&s->lock);
  uint64_t target = s->submitted;
  s->waiters++;
  while (s->completed < target && s->error == cudaSuccess) pthread_cond_wait(&s->progress, &s->lock);
  s->waiters--;
  cudaError_t error = s->error;
  pthread_mutex_unlock(&s->lock);
  return error;
}

cudaError_t stream_synchronize(stream_t *s) {
  cudaError_t error = capture_forbids_wait(s);
  if (error != cudaSuccess) return error;
  if (s->legacy) { /* waits for the blocking streams too */
    error = nccl4j_standin_enqueue(s, &nothing_work, NULL);
    if (error != cudaSuccess) return error;
  }
  return wait_until_now(s);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER(cudaStreamSynchronize);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  cudaError_t error = stream_synchronize(s);
  object_put(s);
  RETURN(error);
}

static cudaError_t stream_query(stream_t *s) {
  cudaError_t error = capture_forbids_wait(s);
  if (error == cudaSuccess) error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) return error;
  pthread_mutex_lock(&streams_lock);
  bool busy = pending_with_blocking(s);
  pthread_mutex_unlock(&streams_lock);
  pthread_mutex_lock(&s->lock);
  error = s->error != cudaSuccess ? s->error : busy ? cudaErrorNotReady : cudaSuccess;
  pthread_mutex_unlock(&s->lock);
  return error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER(cudaStreamQuery);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  cudaError_t error = stream_query(s);
  object_put(s);
  RETURN(error);
}

cudaError_t device_synchronize(int device) {
  stream_t **all = NULL;
  size_t count = 0;
  pthread_mutex_lock(&streams_lock);
  for (stream_t *s = streams; s; s = s->next)
    if (device < 0 || s->device == device) count++;
  all = calloc(count ? count : 1, sizeof *all);
  count = 0;
  for (stream_t *s = streams; s; s = s->next) {
    if (device >= 0 && s->device != device) continue;
    object_hold(s);
    all[count++] = s;
  }
  pthread_mutex_unlock(&streams_lock);
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < count; i++) {
    cudaError_t one = wait_until_now(all[i]);
    if (error == cudaSuccess) error = one;
    object_put(all[i]);
  }
  free(all);
  return error;
}

cudaError_t cudaDeviceSynchronize(void) {
  ENTER(cudaDeviceSynchronize);
  int device;
  cudaError_t error = device_current(&device);
  if (error == cudaSuccess) error = capture_forbids_device_wait(device);
  if (error == cudaSuccess) error = device_synchronize(device);
  RETURN(error);
}

/* A function that stores a property of a stream. */
#define STREAM_PROPERTY(function, type, property)                                                  \
  cudaError_t function(cudaStream_t stream, type *result) {                                        \
    ENTER(function);                                                                               \
    if (!result) RETURN(cudaErrorInvalidValue);                                                    \
    stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());              \
    if (!s) RETURN(cudaErrorInvalidResourceHandle);                                                \
    *result = s->property;                                                                         \
    object_put(s);                                                                                 \
    RETURN(cudaSuccess);                                                                           \
  }
STREAM_PROPERTY(cudaStreamGetFlags, unsigned int, flags)
STREAM_PROPERTY(cudaStreamGetPriority, int, priority)
STREAM_PROPERTY(cudaStreamGetDevice, int, device)
STREAM_PROPERTY(cudaStreamGetId, unsigned long long, id)

void nccl4j_standin_queue(int length) { atomic_store(&queue_length, length); }

void streams_reset(void) {
  nccl4j_standin_queue(0);
  pthread_mutex_lock(&streams_lock);
  for (stream_t *s = streams; s; s = s->next) {
    if (!s->legacy && !s->owned_by_thread) continue;
    pthread_mutex_lock(&s->lock);
    s->error = cudaSuccess;
    pthread_mutex_unlock(&s->lock);
  }
  pthread_mutex_unlock(&streams_lock);
}

int nccl4j_standin_fail_stream(cudaStream_t stream, int error) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return -1;
  pthread_mutex_lock(&s->lock);
  s->error = (cudaError_t)error;
  pthread_cond_broadcast(&s->progress);
  pthread_mutex_unlock(&s->lock);
  object_put(s);
  return 0;
}
