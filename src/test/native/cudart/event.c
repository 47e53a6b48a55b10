/*
 * Events. Recording creates a completion and enqueues its signal in the stream. A wait uses the completion that is
 * current when it begins, so a later record does not affect it. An event recorded during a capture refers to nodes of
 * the graph instead.
 */
#include "graph.h"

#include <stdlib.h>

STANDIN_SITE(cudaEventCreate)
STANDIN_SITE(cudaEventCreateWithFlags)
STANDIN_SITE(cudaEventDestroy)
STANDIN_SITE(cudaEventRecord)
STANDIN_SITE(cudaEventRecordWithFlags)
STANDIN_SITE(cudaEventQuery)
STANDIN_SITE(cudaEventSynchronize)
STANDIN_SITE(cudaEventElapsedTime)
STANDIN_SITE(cudaStreamWaitEvent)
STANDIN_SITE(cudaGraphAddEventRecordNode)
STANDIN_SITE(cudaGraphAddEventWaitNode)

typedef struct {
  struct nccl4j_standin_object object;
  int device;
  unsigned int flags;
  pthread_mutex_t lock;
  struct completion *completion; /* of the last record; NULL if there was none, or during a capture */
  unsigned long long capture;
  struct edges *edges;
} event_t;

static void event_destroy(void *object) {
  event_t *e = object;
  completion_put(e->completion);
  free(e->edges);
  pthread_mutex_destroy(&e->lock);
  free(e);
}

static cudaError_t event_create(cudaEvent_t *event, unsigned int flags) {
  /* Every wait blocks here, and no event leaves its process: its handles (cudaIpcGetEventHandle) are not emulated. */
  const unsigned int known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  int device;
  if (!event || (flags & ~known)) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)) return cudaErrorInvalidValue;
  cudaError_t error = device_current(&device);
  if (error != cudaSuccess) return error;
  event_t *e = calloc(1, sizeof *e);
  e->device = device;
  e->flags = flags;
  pthread_mutex_init(&e->lock, NULL);
  object_add(e, KIND_EVENT, event_destroy);
  if (!(flags & cudaEventDisableTiming)) nccl4j_standin_count(KIND_TIMING_EVENT, 1);
  *event = (cudaEvent_t)e;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  ENTER(cudaEventCreate);
  RETURN(event_create(event, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  ENTER(cudaEventCreateWithFlags);
  RETURN(event_create(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER(cudaEventDestroy);
  if (!object_retire(event, KIND_EVENT)) RETURN(cudaErrorInvalidResourceHandle);
  if (!(((event_t *)event)->flags & cudaEventDisableTiming)) nccl4j_standin_count(KIND_TIMING_EVENT, -1);
  object_put(event);
  RETURN(cudaSuccess);
}

/* Takes ownership of the completion and the edges. */
static void event_recorded(event_t *e, struct completion *c, unsigned long long capture, struct edges *edges) {
  pthread_mutex_lock(&e->lock);
  struct completion *old = e->completion;
  struct edges *old_edges = e->edges;
  e->completion = c;
  e->capture = capture;
  e->edges = edges;
  pthread_mutex_unlock(&e->lock);
  completion_put(old);
  free(old_edges);
}

static cudaError_t record(event_t *e, stream_t *s) {
  if (e->device != s->device) return cudaErrorInvalidResourceHandle;
  if (atomic_load(&captures_active)) {
    bool captured;
    unsigned long long capture;
    struct edges *edges;
    cudaError_t error = capture_forbids_legacy(s);
    if (error == cudaSuccess) error = capture_record(s, false, &capture, &edges, &captured);
    if (error != cudaSuccess) return error;
    if (captured) {
      event_recorded(e, NULL, capture, edges);
      return cudaSuccess;
    }
  }
  struct completion *c = completion_new();
  stream_mark(s, c);
  event_recorded(e, c, 0, NULL);
  return cudaSuccess;
}

cudaError_t event_record(cudaEvent_t event, stream_t *s) {
  event_t *e = object_get(event, KIND_EVENT);
  if (!e) return cudaErrorInvalidResourceHandle;
  cudaError_t error = record(e, s);
  object_put(e);
  return error;
}

cudaError_t event_record_begun(cudaEvent_t event, stream_t *s) {
  bool captured;
  unsigned long long capture;
  struct edges *edges;
  event_t *e = object_get(event, KIND_EVENT);
  cudaError_t error = e && e->device == s->device ? cudaSuccess : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess) error = capture_record(s, true, &capture, &edges, &captured);
  if (error == cudaSuccess && captured) event_recorded(e, NULL, capture, edges);
  if (e) object_put(e);
  return error;
}

static struct completion *current_completion(event_t *e, bool *captured) {
  pthread_mutex_lock(&e->lock);
  struct completion *c = e->completion;
  if (c) completion_hold(c);
  *captured = e->edges != NULL;
  pthread_mutex_unlock(&e->lock);
  return c;
}

/* ---- events as nodes of a graph: recorded or waited for by every launch ---- */

static void event_release(void *event) { object_put(event); }

/* Like a record by a call, the launch makes the event incomplete at once. */
static void *record_node_begin(void *event) {
  struct completion *c = completion_new();
  completion_hold(c);
  event_recorded(event, c, 0, NULL);
  return c;
}

static cudaError_t record_node_start(void *completion) {
  completion_signal(completion, stream_error);
  return cudaSuccess;
}

static void record_node_end(void *completion) {
  struct completion *c = completion;
  if (!c->done) completion_signal(c, stream_error); /* the launch was skipped */
  completion_put(c);
}

static const struct nccl4j_standin_work record_node_work = {
    .begin = record_node_begin,
    .start = record_node_start,
    .end = record_node_end,
    .release = event_release,
    .always = true,
    .type = cudaGraphNodeTypeEventRecord,
};

/* Waits for the last record before the launch, or for the one in the graph itself if that precedes this node. */
static void *wait_node_begin(void *event) {
  bool captured;
  return current_completion(event, &captured);
}

static cudaError_t wait_node_finish(void *completion) { return completion ? completion_wait(completion) : cudaSuccess; }
static void wait_node_end(void *completion) { completion_put(completion); }

static const struct nccl4j_standin_work wait_node_work = {
    .begin = wait_node_begin,
    .finish = wait_node_finish,
    .end = wait_node_end,
    .release = event_release,
    .type = cudaGraphNodeTypeWaitEvent,
};

/* Captures a node, which the flag for external events asks for; the flag is invalid outside a capture. */
static cudaError_t capture_node(cudaEvent_t event, cudaStream_t stream, const struct nccl4j_standin_work *work) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  bool capturing = nccl4j_standin_stream_capture(s) != 0;
  event_t *e = capturing ? object_get(event, KIND_EVENT) : NULL;
  cudaError_t error = capturing ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue;
  if (e) error = nccl4j_standin_enqueue(s, work, e);
  object_put(s);
  return error;
}

static cudaError_t add_node(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
                            cudaEvent_t event, const struct nccl4j_standin_work *work) {
  event_t *e = object_get(event, KIND_EVENT);
  return e ? graph_add(node, graph, dependencies, count, work, e) : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                        const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                        cudaEvent_t event) {
  ENTER(cudaGraphAddEventRecordNode);
  RETURN(add_node(pGraphNode, graph, pDependencies, numDependencies, event, &record_node_work));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                      const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                      cudaEvent_t event) {
  ENTER(cudaGraphAddEventWaitNode);
  RETURN(add_node(pGraphNode, graph, pDependencies, numDependencies, event, &wait_node_work));
}

/* ---- recording ---- */

static cudaError_t record_in(cudaEvent_t event, cudaStream_t stream) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  cudaError_t error = s ? event_record(event, s) : cudaErrorInvalidResourceHandle;
  if (s) object_put(s);
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER(cudaEventRecord);
  RETURN(record_in(event, stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  ENTER(cudaEventRecordWithFlags);
  if (flags & ~(unsigned)cudaEventRecordExternal) RETURN(cudaErrorInvalidValue);
  RETURN(flags ? capture_node(event, stream, &record_node_work) : record_in(event, stream));
}

static cudaError_t completion_state(struct completion *c) {
  pthread_mutex_lock(&c->lock);
  cudaError_t error = c->done ? c->error : cudaErrorNotReady;
  pthread_mutex_unlock(&c->lock);
  return error;
}

/* Asks for the event's completion; one that was never recorded is complete. */
static cudaError_t ask(cudaEvent_t event, cudaError_t (*question)(struct completion *)) {
  event_t *e = object_get(event, KIND_EVENT);
  if (!e) return cudaErrorInvalidResourceHandle;
  cudaError_t error = nccl4j_standin_unsafe();
  bool captured;
  struct completion *c = current_completion(e, &captured);
  if (error == cudaSuccess && captured) error = cudaErrorCapturedEvent;
  if (c && error == cudaSuccess) error = question(c);
  completion_put(c);
  object_put(e);
  return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER(cudaEventQuery);
  RETURN(ask(event, completion_state));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER(cudaEventSynchronize);
  RETURN(ask(event, completion_wait));
}

static cudaError_t time_of(event_t *e, struct timespec *time) {
  bool captured;
  struct completion *c = current_completion(e, &captured);
  cudaError_t error = cudaErrorInvalidResourceHandle; /* never recorded */
  if (captured) error = cudaErrorCapturedEvent;
  if (c && !(e->flags & cudaEventDisableTiming)) error = completion_state(c);
  if (error == cudaSuccess) *time = c->time;
  completion_put(c);
  return error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  ENTER(cudaEventElapsedTime);
  if (!ms) RETURN(cudaErrorInvalidValue);
  event_t *a = object_get(start, KIND_EVENT), *b = object_get(end, KIND_EVENT);
  struct timespec from = {0}, to = {0};
  cudaError_t error = a && b ? cudaSuccess : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess) error = time_of(a, &from);
  if (error == cudaSuccess) error = time_of(b, &to);
  if (error == cudaSuccess)
    *ms = (float)((double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6);
  if (a) object_put(a);
  if (b) object_put(b);
  RETURN(error);
}

static cudaError_t wait_event(stream_t *s, event_t *e) {
  pthread_mutex_lock(&e->lock);
  struct completion *c = e->completion;
  if (c) completion_hold(c);
  unsigned long long capture = e->capture;
  struct edges *edges = e->edges;
  bool captured = false, recorded = c || edges;
  cudaError_t error = cudaSuccess;
  if (recorded && (atomic_load(&captures_active) || edges)) error = capture_wait(s, capture, edges, &captured);
  pthread_mutex_unlock(&e->lock);
  if (c && !captured && error == cudaSuccess) error = stream_wait_for(s, c);
  completion_put(c);
  return error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  ENTER(cudaStreamWaitEvent);
  if (flags & ~(unsigned)cudaEventWaitExternal) RETURN(cudaErrorInvalidValue);
  if (flags) RETURN(capture_node(event, stream, &wait_node_work));
  event_t *e = object_get(event, KIND_EVENT);
  if (!e) RETURN(cudaErrorInvalidResourceHandle);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  cudaError_t error = s ? wait_event(s, e) : cudaErrorInvalidResourceHandle;
  if (s) object_put(s);
  object_put(e);
  RETURN(error);
}
