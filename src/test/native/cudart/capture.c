/*
 * Stream capture. During a capture, enqueued work becomes a node of the capture's graph that depends on the stream's
 * frontier. A wait for an event recorded there adds another stream to the capture, with that frontier.
 *
 * A program may also build the graph itself while it is captured, and set a stream's frontier, as NCCL does.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaStreamBeginCapture)
STANDIN_SITE(cudaStreamEndCapture)
STANDIN_SITE(cudaStreamIsCapturing)
STANDIN_SITE(cudaStreamGetCaptureInfo)
STANDIN_SITE(cudaStreamUpdateCaptureDependencies)
STANDIN_SITE(cudaThreadExchangeStreamCaptureMode)

struct capture {
  unsigned long long id;
  enum cudaStreamCaptureMode mode;
  const void *thread;
  bool invalidated;
  stream_t *origin;
  stream_t **members; /* the origin first; each with a reference */
  size_t member_count;
  struct edges *departed; /* the frontiers of destroyed members */
  graph_t *graph;
  struct capture *next;
};

atomic_int captures_active;
static struct capture *captures; /* under graphs_lock */
static unsigned long long last_capture;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static _Thread_local char this_thread;

/* ---- members; all these need graphs_lock ---- */

/* Takes the edges. */
static void set_frontier(stream_t *s, struct edges *frontier) {
  free(s->frontier);
  s->frontier = frontier;
}

static void capture_join(struct capture *c, stream_t *s) {
  object_hold(s);
  c->members = realloc(c->members, (c->member_count + 1) * sizeof(stream_t *));
  c->members[c->member_count++] = s;
  s->capture = c;
}

static struct capture *capture_with_id(unsigned long long id) {
  for (struct capture *c = captures; c; c = c->next)
    if (c->id == id) return c;
  return NULL;
}

/* The next capture, after `c`, with a blocking stream on the device of this legacy stream; NULL for other streams. */
static struct capture *next_blocking(const stream_t *s, struct capture *c) {
  for (c = c ? c->next : captures; c && s->legacy; c = c->next)
    for (size_t i = 0; i < c->member_count; i++)
      if (c->members[i]->device == s->device && !(c->members[i]->flags & cudaStreamNonBlocking)) return c;
  return NULL;
}

/* CUDA's rule for the legacy stream: it must not depend on a blocking stream that is capturing. */
static cudaError_t forbid_legacy(const stream_t *s) {
  cudaError_t error = cudaSuccess;
  for (struct capture *c = NULL; (c = next_blocking(s, c));) {
    c->invalidated = true;
    error = cudaErrorStreamCaptureImplicit;
  }
  return error;
}

cudaError_t capture_forbids_legacy(const stream_t *s) {
  if (!atomic_load(&captures_active)) return cudaSuccess;
  pthread_mutex_lock(&graphs_lock);
  cudaError_t error = forbid_legacy(s);
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

/* ---- what other files do in a capturing stream ---- */

cudaError_t capture_enqueue(stream_t *s, const struct nccl4j_standin_work *work, void *spec, bool *captured) {
  pthread_mutex_lock(&graphs_lock);
  struct capture *c = s->capture;
  cudaError_t error = c && c->invalidated ? cudaErrorStreamCaptureInvalidated : forbid_legacy(s);
  *captured = c != NULL && error == cudaSuccess;
  if (*captured) {
    struct node *n = graph_append(c->graph, work, spec, edges_copy(s->frontier));
    n->captured = true;
    set_frontier(s, edges_new(1));
    s->frontier->at[0].from = n;
  }
  pthread_mutex_unlock(&graphs_lock);
  if (error != cudaSuccess && work->release) work->release(spec);
  return error;
}

cudaError_t capture_record(stream_t *s, bool beginning, unsigned long long *capture, struct edges **edges,
                           bool *captured) {
  pthread_mutex_lock(&graphs_lock);
  struct capture *c = s->capture;
  cudaError_t error = c && c->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  *captured = c != NULL && error == cudaSuccess;
  if (*captured) {
    *capture = c->id;
    *edges = edges_copy(s->frontier);
    for (size_t i = 0; i < (*edges)->count && beginning; i++)
      (*edges)->at[i].data.from_port = cudaGraphKernelNodePortLaunchCompletion;
  }
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

/* Makes `s` wait for nodes of a capture, which it joins; with NULL edges, for an event outside any capture. */
static cudaError_t wait_for_nodes(stream_t *s, struct capture *c, const struct edges *edges, bool *captured) {
  *captured = false;
  if (s->capture && s->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!edges) {
    if (!s->capture) return cudaSuccess;
    s->capture->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!c) return s->capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent; /* that capture has ended */
  if (s->legacy) {
    c->invalidated = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (s->capture && s->capture != c) {
    c->invalidated = s->capture->invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!s->capture) {
    capture_join(c, s);
    set_frontier(s, edges_copy(edges));
  } else {
    set_frontier(s, edges_union(s->frontier, edges));
  }
  *captured = true;
  return cudaSuccess;
}

cudaError_t capture_wait(stream_t *s, unsigned long long capture, struct edges *edges, bool *captured) {
  pthread_mutex_lock(&graphs_lock);
  cudaError_t error = wait_for_nodes(s, edges ? capture_with_id(capture) : NULL, edges, captured);
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

cudaError_t capture_order(stream_t *earlier, stream_t *later, bool *captured) {
  pthread_mutex_lock(&graphs_lock);
  struct capture *c = earlier->capture;
  cudaError_t error = wait_for_nodes(later, c, c ? earlier->frontier : NULL, captured);
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

unsigned long long nccl4j_standin_stream_capture(stream_t *s) {
  if (!atomic_load(&captures_active)) return 0;
  pthread_mutex_lock(&graphs_lock);
  unsigned long long id = s->capture ? s->capture->id : 0;
  pthread_mutex_unlock(&graphs_lock);
  return id;
}

cudaError_t capture_forbids_wait(stream_t *s) {
  if (!atomic_load(&captures_active)) return cudaSuccess;
  pthread_mutex_lock(&graphs_lock);
  cudaError_t error = forbid_legacy(s);
  if (s->capture) {
    error = s->capture->invalidated ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
    s->capture->invalidated = true;
  }
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

cudaError_t capture_forbids_device_wait(int device) {
  cudaError_t error = cudaSuccess;
  if (!atomic_load(&captures_active)) return error;
  pthread_mutex_lock(&graphs_lock);
  for (struct capture *c = captures; c; c = c->next) {
    for (size_t i = 0; i < c->member_count; i++) {
      if (c->members[i]->device != device) continue;
      c->invalidated = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

cudaError_t nccl4j_standin_unsafe(void) {
  cudaError_t error = cudaSuccess;
  if (!atomic_load(&captures_active) || thread_mode == cudaStreamCaptureModeRelaxed) return error;
  pthread_mutex_lock(&graphs_lock);
  for (struct capture *c = captures; c; c = c->next) {
    bool mine = c->thread == &this_thread && c->mode != cudaStreamCaptureModeRelaxed;
    bool global = c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!mine && !global) continue;
    c->invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  pthread_mutex_unlock(&graphs_lock);
  return error;
}

/* ---- beginning and ending ---- */

/* The stream leaves the capture, which drops its reference. Needs graphs_lock. */
static void leave(stream_t *s) {
  s->capture = NULL;
  set_frontier(s, NULL);
  object_put(s);
}

/* Ends the capture for all its streams; returns the graph, which the caller owns. Needs graphs_lock. */
static graph_t *capture_dissolve(struct capture *c) {
  for (struct capture **at = &captures; *at; at = &(*at)->next) {
    if (*at != c) continue;
    *at = c->next;
    break;
  }
  for (size_t i = 0; i < c->member_count; i++) leave(c->members[i]);
  graph_t *graph = c->graph;
  graph->capturing = false;
  free(c->departed);
  free(c->members);
  free(c);
  atomic_fetch_sub(&captures_active, 1);
  return graph;
}

static void graph_drop(graph_t *g) {
  object_retire(g, KIND_GRAPH);
  object_put(g);
}

/* A destroyed stream leaves its capture; work that it leaves behind must still have been joined. */
static void depart(struct capture *c, stream_t *s) {
  struct edges *departed = edges_union(c->departed, s->frontier);
  free(c->departed);
  c->departed = departed;
  size_t i = 0;
  while (c->members[i] != s) i++;
  c->members[i] = c->members[--c->member_count];
  leave(s);
}

void capture_stream_gone(stream_t *s) {
  if (!atomic_load(&captures_active)) return;
  graph_t *graph = NULL;
  pthread_mutex_lock(&graphs_lock);
  if (s->capture && s->capture->origin == s) graph = capture_dissolve(s->capture);
  else if (s->capture) depart(s->capture, s);
  pthread_mutex_unlock(&graphs_lock);
  if (graph) graph_drop(graph);
}

static cudaError_t begin_capture(stream_t *s, enum cudaStreamCaptureMode mode) {
  if (s->legacy) return cudaErrorStreamCaptureUnsupported;
  pthread_mutex_lock(&graphs_lock);
  bool already = s->capture != NULL;
  if (!already) {
    struct capture *c = calloc(1, sizeof *c);
    c->id = ++last_capture;
    c->mode = mode;
    c->thread = &this_thread;
    c->origin = s;
    c->departed = edges_new(0);
    c->graph = graph_new();
    c->graph->capturing = true;
    c->next = captures;
    captures = c;
    capture_join(c, s);
    set_frontier(s, edges_new(0));
    atomic_fetch_add(&captures_active, 1);
  }
  pthread_mutex_unlock(&graphs_lock);
  return already ? cudaErrorIllegalState : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  ENTER(cudaStreamBeginCapture);
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  cudaError_t error = begin_capture(s, mode);
  object_put(s);
  RETURN(error);
}

/* Marks the nodes that these edges come from, directly or not. */
static void reach(const graph_t *g, const struct edges *edges, bool *reached) {
  const struct edges **open = malloc((g->count + 1) * sizeof *open);
  size_t count = 0;
  open[count++] = edges;
  while (count > 0) {
    edges = open[--count];
    for (size_t i = 0; i < edges->count; i++) {
      const struct node *n = edges->at[i].from;
      if (reached[n->index]) continue;
      reached[n->index] = true;
      open[count++] = n->needs;
    }
  }
  free(open);
}

/* Nodes that the program added itself need not be joined. */
static bool joined(const struct edges *frontier, const bool *reached) {
  for (size_t i = 0; i < frontier->count; i++)
    if (frontier->at[i].from->captured && !reached[frontier->at[i].from->index]) return false;
  return true;
}

/* Whether every forked stream has been joined into the origin. */
static bool all_joined(const struct capture *c) {
  bool *reached = calloc(c->graph->count + 1, sizeof *reached);
  reach(c->graph, c->origin->frontier, reached);
  bool all = joined(c->departed, reached);
  for (size_t m = 0; m < c->member_count && all; m++) all = joined(c->members[m]->frontier, reached);
  free(reached);
  return all;
}

static cudaError_t end_capture(stream_t *s, cudaGraph_t *graph) {
  *graph = NULL;
  pthread_mutex_lock(&graphs_lock);
  struct capture *c = s->capture;
  cudaError_t error = cudaSuccess;
  if (!c) {
    error = cudaErrorIllegalState;
  } else if (c->origin != s) {
    error = cudaErrorStreamCaptureUnmatched;
    c->invalidated = true;
  } else if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &this_thread) {
    error = cudaErrorStreamCaptureWrongThread;
  }
  if (error != cudaSuccess) {
    pthread_mutex_unlock(&graphs_lock);
    return error;
  }
  if (c->invalidated) error = cudaErrorStreamCaptureInvalidated;
  else if (!all_joined(c)) error = cudaErrorStreamCaptureUnjoined;
  graph_t *captured = capture_dissolve(c);
  pthread_mutex_unlock(&graphs_lock);
  if (error == cudaSuccess) *graph = (cudaGraph_t)captured;
  else graph_drop(captured);
  return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  ENTER(cudaStreamEndCapture);
  if (!graph) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  cudaError_t error = end_capture(s, graph);
  object_put(s);
  RETURN(error);
}

/* ---- queries and changes ---- */

/* Stores the frontier in arrays that the stream owns until the next call. Needs graphs_lock. */
static cudaError_t frontier_info(stream_t *s, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **data,
                                 size_t *count) {
  const struct edges *f = s->frontier;
  cudaError_t error = cudaSuccess;
  free(s->frontier_nodes);
  free(s->frontier_data);
  s->frontier_nodes = calloc(f->count + 1, sizeof *s->frontier_nodes);
  s->frontier_data = calloc(f->count + 1, sizeof *s->frontier_data);
  for (size_t i = 0; i < f->count; i++) {
    s->frontier_nodes[i] = (cudaGraphNode_t)f->at[i].from;
    s->frontier_data[i] = f->at[i].data;
    if (nodes && !data && memcmp(&f->at[i].data, &(cudaGraphEdgeData){0}, sizeof(cudaGraphEdgeData)) != 0)
      error = cudaErrorLossyQuery;
  }
  if (nodes) *nodes = s->frontier_nodes;
  if (data) *data = s->frontier_data;
  if (count) *count = f->count;
  return error;
}

/* Needs graphs_lock. */
static enum cudaStreamCaptureStatus status_of(const struct capture *c) {
  if (!c) return cudaStreamCaptureStatusNone;
  return c->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus) {
  ENTER(cudaStreamIsCapturing);
  if (!captureStatus) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&graphs_lock);
  *captureStatus = status_of(s->capture);
  cudaError_t error = next_blocking(s, NULL) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
  pthread_mutex_unlock(&graphs_lock);
  object_put(s);
  RETURN(error);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus,
                                     unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edgeData, size_t *numDependencies) {
  ENTER(cudaStreamGetCaptureInfo);
  if (!captureStatus || (edgeData && !dependencies)) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&graphs_lock);
  struct capture *c = s->capture;
  cudaError_t error = next_blocking(s, NULL) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
  *captureStatus = status_of(c);
  if (id) *id = c ? c->id : 0;
  if (graph) *graph = c ? (cudaGraph_t)c->graph : NULL;
  if (c && (dependencies || numDependencies)) error = frontier_info(s, dependencies, edgeData, numDependencies);
  pthread_mutex_unlock(&graphs_lock);
  object_put(s);
  RETURN(error);
}

/* Needs graphs_lock. */
static cudaError_t update_frontier(stream_t *s, const cudaGraphNode_t *nodes, const cudaGraphEdgeData *data,
                                   size_t count, bool replace) {
  struct capture *c = s->capture;
  if (!c) return cudaErrorIllegalState;
  if (c->invalidated) return cudaErrorStreamCaptureInvalidated;
  struct edges *edges = edges_new(count);
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < count && error == cudaSuccess; i++)
    error = edge_check(c->graph, nodes[i], data ? &data[i] : NULL, &edges->at[i]);
  if (error == cudaSuccess) set_frontier(s, replace ? edges_copy(edges) : edges_union(s->frontier, edges));
  free(edges);
  return error;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *dependencyData, size_t numDependencies,
                                                unsigned int flags) {
  ENTER(cudaStreamUpdateCaptureDependencies);
  if (flags > cudaStreamSetCaptureDependencies || (numDependencies && !dependencies)) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) RETURN(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&graphs_lock);
  bool replace = flags == cudaStreamSetCaptureDependencies;
  cudaError_t error = update_frontier(s, dependencies, dependencyData, numDependencies, replace);
  pthread_mutex_unlock(&graphs_lock);
  object_put(s);
  RETURN(error);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  ENTER(cudaThreadExchangeStreamCaptureMode);
  if (!mode || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
    RETURN(cudaErrorInvalidValue);
  enum cudaStreamCaptureMode old = thread_mode;
  thread_mode = *mode;
  *mode = old;
  RETURN(cudaSuccess);
}
