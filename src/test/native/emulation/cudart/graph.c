/*
 * Stream capture and graphs. During a capture, enqueued work becomes a node that depends on the nodes at the stream's
 * frontier. A wait for an event recorded there adds another stream to the capture, with that frontier.
 *
 * A launch is one work item of its stream. It runs the nodes level by level and starts all nodes of a level before it
 * waits for any, so that ranks of one communicator captured in one graph do not wait for each other.
 */
#include "cudart.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaStreamBeginCapture)
STANDIN_SITE(cudaStreamEndCapture)
STANDIN_SITE(cudaStreamIsCapturing)
STANDIN_SITE(cudaStreamGetCaptureInfo)
STANDIN_SITE(cudaThreadExchangeStreamCaptureMode)
STANDIN_SITE(cudaGraphCreate)
STANDIN_SITE(cudaGraphDestroy)
STANDIN_SITE(cudaGraphGetNodes)
STANDIN_SITE(cudaGraphInstantiate)
STANDIN_SITE(cudaGraphInstantiateWithFlags)
STANDIN_SITE(cudaGraphExecDestroy)
STANDIN_SITE(cudaGraphUpload)
STANDIN_SITE(cudaGraphLaunch)

struct node_set {
  size_t count;
  size_t nodes[];
};

struct node {
  const struct nccl4j_standin_work *work;
  void *spec;
  struct node_set *needs;
  int level;
};

/* The nodes, shared by a graph, its executable graphs and their launches; immutable after the capture. */
struct nodes {
  _Atomic int references;
  size_t count, capacity;
  int levels;
  struct node *at;
};

struct capture {
  unsigned long long id;
  enum cudaStreamCaptureMode mode;
  const void *thread;
  bool invalidated;
  stream_t *origin;
  stream_t **members; /* the origin first; each with a reference */
  size_t member_count;
  struct nodes *nodes;
  struct capture *next;
};

typedef struct {
  struct nccl4j_standin_object object;
  struct nodes *nodes;
} graph_t;

atomic_int captures_active;
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static unsigned long long last_capture;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static _Thread_local char this_thread;

/* ---- nodes ---- */

static struct nodes *nodes_new(void) {
  struct nodes *n = calloc(1, sizeof *n);
  atomic_init(&n->references, 1);
  return n;
}

static void nodes_hold(struct nodes *n) { atomic_fetch_add(&n->references, 1); }

static void nodes_put(struct nodes *n) {
  if (atomic_fetch_sub(&n->references, 1) > 1) return;
  for (size_t i = 0; i < n->count; i++) {
    if (n->at[i].work->release) n->at[i].work->release(n->at[i].spec);
    free(n->at[i].needs);
  }
  free(n->at);
  free(n);
}

void node_set_free(struct node_set *nodes) { free(nodes); }

static struct node_set *set_of(const size_t *nodes, size_t count) {
  struct node_set *set = malloc(sizeof *set + count * sizeof *set->nodes);
  set->count = count;
  if (count) memcpy(set->nodes, nodes, count * sizeof *nodes);
  return set;
}

static struct node_set *set_copy(const struct node_set *set) {
  return set ? set_of(set->nodes, set->count) : set_of(NULL, 0);
}

static struct node_set *set_union(const struct node_set *a, const struct node_set *b) {
  struct node_set *set = malloc(sizeof *set + (a->count + b->count) * sizeof *set->nodes);
  set->count = a->count;
  memcpy(set->nodes, a->nodes, a->count * sizeof *a->nodes);
  for (size_t i = 0; i < b->count; i++) {
    bool known = false;
    for (size_t j = 0; j < a->count; j++) known |= a->nodes[j] == b->nodes[i];
    if (!known) set->nodes[set->count++] = b->nodes[i];
  }
  return set;
}

/* Appends a node that depends on the given ones; returns its index. */
static size_t nodes_append(struct nodes *n, const struct nccl4j_standin_work *work, void *spec,
                           struct node_set *needs) {
  if (n->count == n->capacity) {
    n->capacity = n->capacity ? 2 * n->capacity : 16;
    n->at = realloc(n->at, n->capacity * sizeof *n->at);
  }
  int level = 0;
  for (size_t i = 0; i < needs->count; i++)
    if (n->at[needs->nodes[i]].level >= level) level = n->at[needs->nodes[i]].level + 1;
  n->at[n->count] = (struct node){work, spec, needs, level};
  if (level >= n->levels) n->levels = level + 1;
  return n->count++;
}

/* ---- capturing ---- */

static void set_frontier(stream_t *s, struct node_set *frontier) {
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

/* CUDA's rule for the legacy stream: it must not depend on a blocking stream that is capturing. */
static cudaError_t forbid_legacy(const stream_t *s) {
  cudaError_t error = cudaSuccess;
  if (!s->legacy) return error;
  for (struct capture *c = captures; c; c = c->next) {
    for (size_t i = 0; i < c->member_count; i++) {
      stream_t *m = c->members[i];
      if (m->device != s->device || (m->flags & cudaStreamNonBlocking)) continue;
      c->invalidated = true;
      error = cudaErrorStreamCaptureImplicit;
    }
  }
  return error;
}

cudaError_t capture_forbids_legacy(const stream_t *s) {
  if (!atomic_load(&captures_active)) return cudaSuccess;
  pthread_mutex_lock(&capture_lock);
  cudaError_t error = forbid_legacy(s);
  pthread_mutex_unlock(&capture_lock);
  return error;
}

cudaError_t capture_enqueue(stream_t *s, const struct nccl4j_standin_work *work, void *spec, bool *captured) {
  pthread_mutex_lock(&capture_lock);
  struct capture *c = s->capture;
  cudaError_t error = c && c->invalidated ? cudaErrorStreamCaptureInvalidated : forbid_legacy(s);
  *captured = c != NULL && error == cudaSuccess;
  if (*captured) {
    size_t node = nodes_append(c->nodes, work, spec, set_copy(s->frontier));
    set_frontier(s, set_of(&node, 1));
  }
  pthread_mutex_unlock(&capture_lock);
  if (error != cudaSuccess && work->release) work->release(spec);
  return error;
}

cudaError_t capture_record(stream_t *s, unsigned long long *capture, struct node_set **nodes, bool *captured) {
  pthread_mutex_lock(&capture_lock);
  struct capture *c = s->capture;
  cudaError_t error = c && c->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  *captured = c != NULL && error == cudaSuccess;
  if (*captured) {
    *capture = c->id;
    *nodes = set_copy(s->frontier);
  }
  pthread_mutex_unlock(&capture_lock);
  return error;
}

/* Makes `s` wait for nodes of a capture, which it joins; with NULL nodes, for an event outside any capture. */
static cudaError_t wait_for_nodes(stream_t *s, struct capture *c, const struct node_set *nodes, bool *captured) {
  *captured = false;
  if (s->capture && s->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!nodes) {
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
    set_frontier(s, set_copy(nodes));
  } else {
    set_frontier(s, set_union(s->frontier, nodes));
  }
  *captured = true;
  return cudaSuccess;
}

cudaError_t capture_wait(stream_t *s, unsigned long long capture, struct node_set *nodes, bool *captured) {
  pthread_mutex_lock(&capture_lock);
  cudaError_t error = wait_for_nodes(s, nodes ? capture_with_id(capture) : NULL, nodes, captured);
  pthread_mutex_unlock(&capture_lock);
  return error;
}

cudaError_t capture_order(stream_t *earlier, stream_t *later, bool *captured) {
  pthread_mutex_lock(&capture_lock);
  struct capture *c = earlier->capture;
  cudaError_t error = wait_for_nodes(later, c, c ? earlier->frontier : NULL, captured);
  pthread_mutex_unlock(&capture_lock);
  return error;
}

unsigned long long nccl4j_standin_stream_capture(stream_t *s) {
  if (!atomic_load(&captures_active)) return 0;
  pthread_mutex_lock(&capture_lock);
  unsigned long long id = s->capture ? s->capture->id : 0;
  pthread_mutex_unlock(&capture_lock);
  return id;
}

cudaError_t capture_forbids_wait(stream_t *s) {
  if (!atomic_load(&captures_active)) return cudaSuccess;
  pthread_mutex_lock(&capture_lock);
  cudaError_t error = forbid_legacy(s);
  if (s->capture) {
    error = s->capture->invalidated ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
    s->capture->invalidated = true;
  }
  pthread_mutex_unlock(&capture_lock);
  return error;
}

cudaError_t capture_forbids_device_wait(int device) {
  cudaError_t error = cudaSuccess;
  if (!atomic_load(&captures_active)) return error;
  pthread_mutex_lock(&capture_lock);
  for (struct capture *c = captures; c; c = c->next) {
    for (size_t i = 0; i < c->member_count; i++) {
      if (c->members[i]->device != device) continue;
      c->invalidated = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  pthread_mutex_unlock(&capture_lock);
  return error;
}

cudaError_t nccl4j_standin_unsafe(void) {
  cudaError_t error = cudaSuccess;
  if (!atomic_load(&captures_active) || thread_mode == cudaStreamCaptureModeRelaxed) return error;
  pthread_mutex_lock(&capture_lock);
  for (struct capture *c = captures; c; c = c->next) {
    bool mine = c->thread == &this_thread && c->mode != cudaStreamCaptureModeRelaxed;
    bool global = c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!mine && !global) continue;
    c->invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  pthread_mutex_unlock(&capture_lock);
  return error;
}

/* Ends the capture for all its streams; returns the nodes, which the caller owns. Needs capture_lock. */
static struct nodes *capture_dissolve(struct capture *c) {
  for (struct capture **at = &captures; *at; at = &(*at)->next) {
    if (*at != c) continue;
    *at = c->next;
    break;
  }
  for (size_t i = 0; i < c->member_count; i++) {
    stream_t *m = c->members[i];
    m->capture = NULL;
    set_frontier(m, NULL);
    object_put(m);
  }
  struct nodes *nodes = c->nodes;
  free(c->members);
  free(c);
  atomic_fetch_sub(&captures_active, 1);
  return nodes;
}

void capture_stream_gone(stream_t *s) {
  if (!atomic_load(&captures_active)) return;
  struct nodes *nodes = NULL;
  pthread_mutex_lock(&capture_lock);
  if (s->capture && s->capture->origin == s) nodes = capture_dissolve(s->capture);
  else if (s->capture) s->capture->invalidated = true;
  pthread_mutex_unlock(&capture_lock);
  if (nodes) nodes_put(nodes);
}

static cudaError_t begin_capture(stream_t *s, enum cudaStreamCaptureMode mode) {
  if (s->legacy) return cudaErrorStreamCaptureUnsupported;
  pthread_mutex_lock(&capture_lock);
  bool already = s->capture != NULL;
  if (!already) {
    struct capture *c = calloc(1, sizeof *c);
    c->id = ++last_capture;
    c->mode = mode;
    c->thread = &this_thread;
    c->origin = s;
    c->nodes = nodes_new();
    c->next = captures;
    captures = c;
    capture_join(c, s);
    set_frontier(s, set_of(NULL, 0));
    atomic_fetch_add(&captures_active, 1);
  }
  pthread_mutex_unlock(&capture_lock);
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

/* Whether every forked stream has been joined into the origin. */
static bool all_joined(const struct capture *c) {
  bool *before = calloc(c->nodes->count + 1, sizeof *before);
  for (size_t i = 0; i < c->origin->frontier->count; i++) before[c->origin->frontier->nodes[i]] = true;
  for (size_t n = c->nodes->count; n-- > 0;) {
    const struct node_set *needs = c->nodes->at[n].needs;
    for (size_t i = 0; before[n] && i < needs->count; i++) before[needs->nodes[i]] = true;
  }
  bool joined = true;
  for (size_t m = 0; m < c->member_count; m++)
    for (size_t i = 0; i < c->members[m]->frontier->count; i++) joined &= before[c->members[m]->frontier->nodes[i]];
  free(before);
  return joined;
}

static graph_t *graph_new(struct nodes *nodes, enum nccl4j_standin_kind kind);

static cudaError_t end_capture(stream_t *s, cudaGraph_t *graph) {
  *graph = NULL;
  pthread_mutex_lock(&capture_lock);
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
    pthread_mutex_unlock(&capture_lock);
    return error;
  }
  if (c->invalidated) error = cudaErrorStreamCaptureInvalidated;
  else if (!all_joined(c)) error = cudaErrorStreamCaptureUnjoined;
  struct nodes *nodes = capture_dissolve(c);
  pthread_mutex_unlock(&capture_lock);
  if (error == cudaSuccess) *graph = (cudaGraph_t)graph_new(nodes, KIND_GRAPH);
  else nodes_put(nodes);
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

static cudaError_t capture_status(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                  unsigned long long *id) {
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) return cudaErrorInvalidResourceHandle;
  pthread_mutex_lock(&capture_lock);
  struct capture *c = s->capture;
  *status = !c            ? cudaStreamCaptureStatusNone
            : c->invalidated   ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
  if (id) *id = c ? c->id : 0;
  pthread_mutex_unlock(&capture_lock);
  object_put(s);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus) {
  ENTER(cudaStreamIsCapturing);
  if (!captureStatus) RETURN(cudaErrorInvalidValue);
  RETURN(capture_status(stream, captureStatus, NULL));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus,
                                     unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edgeData, size_t *numDependencies) {
  ENTER(cudaStreamGetCaptureInfo);
  if (!captureStatus) RETURN(cudaErrorInvalidValue);
  if (graph || dependencies || edgeData || numDependencies) RETURN(cudaErrorNotSupported);
  RETURN(capture_status(stream, captureStatus, id));
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

/* ---- graphs ---- */

static void graph_destroy(void *object) {
  graph_t *g = object;
  nodes_put(g->nodes);
  free(g);
}

/* Takes ownership of the nodes. */
static graph_t *graph_new(struct nodes *nodes, enum nccl4j_standin_kind kind) {
  graph_t *g = calloc(1, sizeof *g);
  g->nodes = nodes;
  object_add(g, kind, graph_destroy);
  return g;
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags) {
  ENTER(cudaGraphCreate);
  if (!graph || flags != 0) RETURN(cudaErrorInvalidValue);
  *graph = (cudaGraph_t)graph_new(nodes_new(), KIND_GRAPH);
  RETURN(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENTER(cudaGraphDestroy);
  if (!object_retire(graph, KIND_GRAPH)) RETURN(cudaErrorInvalidValue);
  object_put(graph);
  RETURN(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes) {
  ENTER(cudaGraphGetNodes);
  graph_t *g = object_get(graph, KIND_GRAPH);
  if (!g || !numNodes) {
    if (g) object_put(g);
    RETURN(cudaErrorInvalidValue);
  }
  for (size_t i = 0; nodes && i < *numNodes; i++)
    nodes[i] = i < g->nodes->count ? (cudaGraphNode_t)&g->nodes->at[i] : NULL;
  if (!nodes || *numNodes > g->nodes->count) *numNodes = g->nodes->count;
  object_put(g);
  RETURN(cudaSuccess);
}

static cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph) {
  if (!exec) return cudaErrorInvalidValue;
  graph_t *g = object_get(graph, KIND_GRAPH);
  if (!g) return cudaErrorInvalidValue;
  nodes_hold(g->nodes);
  *exec = (cudaGraphExec_t)graph_new(g->nodes, KIND_GRAPH_EXEC);
  object_put(g);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graphExec, cudaGraph_t graph, unsigned long long flags) {
  (void)flags;
  ENTER(cudaGraphInstantiate);
  RETURN(instantiate(graphExec, graph));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *graphExec, cudaGraph_t graph, unsigned long long flags) {
  (void)flags;
  ENTER(cudaGraphInstantiateWithFlags);
  RETURN(instantiate(graphExec, graph));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  ENTER(cudaGraphExecDestroy);
  if (!object_retire(graphExec, KIND_GRAPH_EXEC)) RETURN(cudaErrorInvalidValue);
  object_put(graphExec);
  RETURN(cudaSuccess);
}

struct launch {
  struct nodes *nodes;
  void *executions[];
};

static void *launch_begin(void *spec) {
  struct nodes *n = spec;
  struct launch *l = malloc(sizeof *l + n->count * sizeof *l->executions);
  l->nodes = n;
  for (size_t i = 0; i < n->count; i++)
    l->executions[i] = n->at[i].work->begin ? n->at[i].work->begin(n->at[i].spec) : n->at[i].spec;
  return l;
}

static cudaError_t launch_level(struct launch *l, int level) {
  cudaError_t error = cudaSuccess;
  struct nodes *n = l->nodes;
  for (size_t i = 0; i < n->count && error == cudaSuccess; i++)
    if (n->at[i].level == level && n->at[i].work->start) error = n->at[i].work->start(l->executions[i]);
  for (size_t i = 0; i < n->count && error == cudaSuccess; i++)
    if (n->at[i].level == level && n->at[i].work->finish) error = n->at[i].work->finish(l->executions[i]);
  return error;
}

static cudaError_t launch_finish(void *execution) {
  struct launch *l = execution;
  cudaError_t error = cudaSuccess;
  for (int level = 0; level < l->nodes->levels && error == cudaSuccess; level++) error = launch_level(l, level);
  return error;
}

static void launch_end(void *execution) {
  struct launch *l = execution;
  for (size_t i = 0; i < l->nodes->count; i++)
    if (l->nodes->at[i].work->end) l->nodes->at[i].work->end(l->executions[i]);
  free(l);
}

static void launch_release(void *spec) { nodes_put(spec); }

static const struct nccl4j_standin_work launch_work = {
    .begin = launch_begin, .finish = launch_finish, .end = launch_end, .release = launch_release};

static cudaError_t launch(cudaGraphExec_t exec, cudaStream_t stream, bool run) {
  graph_t *g = object_get(exec, KIND_GRAPH_EXEC);
  if (!g) return cudaErrorInvalidValue;
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  cudaError_t error = s ? cudaSuccess : cudaErrorInvalidResourceHandle;
  if (s && run) {
    nodes_hold(g->nodes);
    error = nccl4j_standin_enqueue(s, &launch_work, g->nodes);
  }
  if (s) object_put(s);
  object_put(g);
  return error;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  ENTER(cudaGraphUpload);
  RETURN(launch(graphExec, stream, false));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  ENTER(cudaGraphLaunch);
  RETURN(launch(graphExec, stream, true));
}
