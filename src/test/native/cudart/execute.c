/*
 * Executable graphs. They are copies: changes of the graph do not affect them.
 *
 * A launch is one work item of its stream. The stream's worker runs one chain of nodes; every other node that becomes
 * ready at the same time runs on a thread of its own (a lane), since kernels of independent branches may wait for each
 * other. The launches of one executable graph run one after the other, also in different streams.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaGraphInstantiate)
STANDIN_SITE(cudaGraphExecDestroy)
STANDIN_SITE(cudaGraphLaunch)

/* A step that depends on another one, on its beginning or its end. */
struct successor {
  size_t step;
  bool on_beginning;
};

/* A node in the order of execution. */
struct step {
  struct body *body;
  size_t needs;
  struct successor *next;
  size_t next_count;
};

typedef struct {
  struct nccl4j_standin_object object;
  struct step *steps;
  size_t count;
  struct user_reference *users;
  pthread_mutex_t lock;
  struct completion *last; /* of the last launch, under the lock */
} exec_t;

/* ---- lanes: threads that run ready steps ---- */

#define LANE_IDLE_NANOSECONDS 100000000 /* then it ends */

struct run;
static void run_chain(struct run *run, size_t step);

struct ready {
  struct run *run;
  size_t step;
  struct ready *next;
};

static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lanes_more;
static pthread_once_t lanes_once = PTHREAD_ONCE_INIT;
static struct ready *ready_steps;
static size_t ready_count, idle_lanes;

static void lanes_prepare(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&lanes_more, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* Waits for a ready step; NULL after some time without one. Needs the lock. */
static struct ready *take_ready(void) {
  struct timespec deadline;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_nsec += LANE_IDLE_NANOSECONDS;
  deadline.tv_sec += deadline.tv_nsec / 1000000000;
  deadline.tv_nsec %= 1000000000;
  int timed_out = 0;
  idle_lanes++;
  while (!ready_steps && !timed_out) timed_out = pthread_cond_timedwait(&lanes_more, &lanes_lock, &deadline);
  idle_lanes--;
  struct ready *r = ready_steps;
  if (r) {
    ready_steps = r->next;
    ready_count--;
  }
  return r;
}

static void *lane(void *nothing) {
  pthread_mutex_lock(&lanes_lock);
  for (struct ready *r; (r = take_ready());) {
    pthread_mutex_unlock(&lanes_lock);
    run_chain(r->run, r->step);
    free(r);
    pthread_mutex_lock(&lanes_lock);
  }
  pthread_mutex_unlock(&lanes_lock);
  return nothing;
}

/* A step never waits for a lane that is busy: there are as many lanes as steps that run at once. */
static void run_in_lane(struct run *run, size_t step) {
  struct ready *r = malloc(sizeof *r);
  pthread_once(&lanes_once, lanes_prepare);
  pthread_mutex_lock(&lanes_lock);
  *r = (struct ready){run, step, ready_steps};
  ready_steps = r;
  ready_count++;
  bool more = ready_count > idle_lanes;
  pthread_cond_signal(&lanes_more);
  pthread_mutex_unlock(&lanes_lock);
  if (more && !nccl4j_standin_thread(lane, NULL)) abort(); /* no memory for a thread */
}

/* ---- running a launch ---- */

struct run {
  exec_t *exec;
  void **executions;
  struct completion *previous, *done; /* of the launch before, and of this one */
  pthread_mutex_t lock;
  pthread_cond_t finished;
  size_t *waiting; /* of each step: the dependencies that are not yet satisfied */
  size_t remaining;
  cudaError_t error;
  bool ran; /* not skipped */
};

static void *run_begin(void *spec) {
  exec_t *e = spec;
  struct run *r = calloc(1, sizeof *r);
  r->exec = e;
  r->executions = calloc(e->count + 1, sizeof *r->executions);
  r->waiting = calloc(e->count + 1, sizeof *r->waiting);
  r->remaining = e->count;
  r->done = completion_new();
  completion_hold(r->done);
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->finished, NULL);
  pthread_mutex_lock(&e->lock);
  r->previous = e->last;
  e->last = r->done;
  pthread_mutex_unlock(&e->lock);
  for (size_t i = 0; i < e->count; i++) {
    const struct body *b = e->steps[i].body;
    r->executions[i] = b->work->begin ? b->work->begin(b->spec) : b->spec;
    r->waiting[i] = e->steps[i].needs;
  }
  return r;
}

/* Marks the beginning or the end of a step, and runs what this makes ready. Of the steps that an end makes ready, the
 * caller runs the first one, which is stored. */
static bool step_reached(struct run *r, size_t step, bool beginning, cudaError_t error, size_t *next) {
  const struct step *s = &r->exec->steps[step];
  size_t *lanes = malloc((s->next_count + 1) * sizeof *lanes);
  size_t count = 0;
  bool found = false;
  pthread_mutex_lock(&r->lock);
  if (r->error == cudaSuccess) r->error = error;
  for (size_t i = 0; i < s->next_count; i++) {
    if (s->next[i].on_beginning != beginning || --r->waiting[s->next[i].step] > 0) continue;
    if (beginning || found) {
      lanes[count++] = s->next[i].step;
    } else {
      *next = s->next[i].step;
      found = true;
    }
  }
  if (!beginning && --r->remaining == 0) pthread_cond_signal(&r->finished);
  pthread_mutex_unlock(&r->lock);
  /* The run may have ended by now, unless a step is left to run. */
  for (size_t i = 0; i < count; i++) run_in_lane(r, lanes[i]);
  free(lanes);
  return found;
}

static void run_chain(struct run *r, size_t step) {
  bool more = true;
  while (more) {
    const struct nccl4j_standin_work *work = r->exec->steps[step].body->work;
    void *execution = r->executions[step];
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&r->lock);
    stream_error = r->error;
    pthread_mutex_unlock(&r->lock);
    bool runs = stream_error == cudaSuccess || work->always;
    if (runs && work->start) error = work->start(execution);
    step_reached(r, step, true, error, NULL);
    if (runs && error == cudaSuccess && work->finish) error = work->finish(execution);
    more = step_reached(r, step, false, error, &step);
  }
}

static cudaError_t run_finish(void *execution) {
  struct run *r = execution;
  const exec_t *e = r->exec;
  bool first_found = false;
  size_t first = 0;
  if (r->previous) completion_wait(r->previous);
  for (size_t i = 0; i < e->count; i++) {
    if (e->steps[i].needs > 0) continue;
    if (first_found) {
      run_in_lane(r, i);
    } else {
      first = i;
      first_found = true;
    }
  }
  if (first_found) run_chain(r, first);
  pthread_mutex_lock(&r->lock);
  while (r->remaining > 0) pthread_cond_wait(&r->finished, &r->lock);
  cudaError_t error = r->error;
  pthread_mutex_unlock(&r->lock);
  completion_signal(r->done, error); /* not in run_end, which a parent calls only after its last step */
  r->ran = true;
  return error;
}

static void run_end(void *execution) {
  struct run *r = execution;
  for (size_t i = 0; i < r->exec->count; i++) {
    const struct nccl4j_standin_work *work = r->exec->steps[i].body->work;
    if (work->end) work->end(r->executions[i]);
  }
  if (!r->ran) { /* skipped, but later launches still wait for earlier ones */
    if (r->previous) completion_wait(r->previous);
    completion_signal(r->done, r->error);
  }
  completion_put(r->done);
  completion_put(r->previous);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->finished);
  free(r->executions);
  free(r->waiting);
  free(r);
}

/* Captured, a launch is a node that runs the graph as a child. */
static const struct nccl4j_standin_work run_work = {
    .begin = run_begin,
    .finish = run_finish,
    .end = run_end,
    .release = object_put,
    .type = cudaGraphNodeTypeGraph,
};

/* ---- executable graphs ---- */

static void exec_destroy(void *object) {
  exec_t *e = object;
  for (size_t i = 0; i < e->count; i++) {
    body_put(e->steps[i].body);
    free(e->steps[i].next);
  }
  user_references_free(e->users);
  completion_put(e->last);
  pthread_mutex_destroy(&e->lock);
  free(e->steps);
  free(e);
}

static void step_follows(struct step *s, size_t step, bool on_beginning) {
  s->next = realloc(s->next, (s->next_count + 1) * sizeof *s->next);
  s->next[s->next_count++] = (struct successor){step, on_beginning};
}

static bool placed(const struct edges *needs, const size_t *place) {
  for (size_t i = 0; i < needs->count; i++)
    if (place[needs->at[i].from->index] == SIZE_MAX) return false;
  return true;
}

static void place_node(exec_t *e, const struct node *n, size_t *place) {
  size_t at = e->count++;
  place[n->index] = at;
  e->steps[at] = (struct step){.body = n->body, .needs = n->needs->count};
  body_hold(n->body);
  for (size_t i = 0; i < n->needs->count; i++) {
    const struct edge *edge = &n->needs->at[i];
    step_follows(&e->steps[place[edge->from->index]], at, edge_on_beginning(&edge->data));
  }
}

/* Orders the nodes as they were added, as far as their dependencies permit; executions begin in this order. Fails if
 * the dependencies form a cycle. Needs graphs_lock. */
static cudaError_t place_nodes(exec_t *e, const graph_t *g) {
  size_t *place = malloc((g->count + 1) * sizeof *place);
  for (size_t i = 0; i < g->count; i++) place[i] = SIZE_MAX;
  e->steps = calloc(g->count + 1, sizeof *e->steps);
  for (size_t before = SIZE_MAX; e->count < g->count && e->count != before;) {
    before = e->count;
    for (size_t i = 0; i < g->count; i++)
      if (place[i] == SIZE_MAX && placed(g->at[i]->needs, place)) place_node(e, g->at[i], place);
  }
  free(place);
  return e->count == g->count ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graphExec, cudaGraph_t graph, unsigned long long flags) {
  ENTER(cudaGraphInstantiate);
  /* These have no effect here: no node allocates memory, nothing needs an upload, and priorities are only hints. */
  const unsigned long long known = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
                                   cudaGraphInstantiateFlagUseNodePriority;
  if (!graphExec) RETURN(cudaErrorInvalidValue);
  if (flags & ~known) not_emulated("instantiating a graph with flags %#llx", flags);
  graph_t *g = object_get(graph, KIND_GRAPH);
  if (!g) RETURN(cudaErrorInvalidValue);
  cudaError_t error = nccl4j_standin_unsafe();
  if (error != cudaSuccess) {
    object_put(g);
    RETURN(error);
  }
  exec_t *e = calloc(1, sizeof *e);
  pthread_mutex_init(&e->lock, NULL);
  pthread_mutex_lock(&graphs_lock);
  error = place_nodes(e, g);
  if (error == cudaSuccess) e->users = user_references_copy(g->users);
  pthread_mutex_unlock(&graphs_lock);
  if (error == cudaSuccess) {
    object_add(e, KIND_GRAPH_EXEC, exec_destroy);
    *graphExec = (cudaGraphExec_t)e;
  } else {
    exec_destroy(e);
  }
  object_put(g);
  RETURN(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  ENTER(cudaGraphExecDestroy);
  if (nccl4j_standin_unsafe() != cudaSuccess) RETURN(cudaErrorStreamCaptureUnsupported);
  if (!object_retire(graphExec, KIND_GRAPH_EXEC)) RETURN(cudaErrorInvalidValue);
  object_put(graphExec);
  RETURN(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  ENTER(cudaGraphLaunch);
  exec_t *e = object_get(graphExec, KIND_GRAPH_EXEC);
  if (!e) RETURN(cudaErrorInvalidValue);
  stream_t *s = nccl4j_standin_stream_get(stream, nccl4j_standin_current_device());
  if (!s) {
    object_put(e);
    RETURN(cudaErrorInvalidResourceHandle);
  }
  cudaError_t error = nccl4j_standin_enqueue(s, &run_work, e);
  object_put(s);
  RETURN(error);
}
