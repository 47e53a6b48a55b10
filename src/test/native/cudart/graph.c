/*
 * Graphs: nodes with work and dependencies, built by a capture (capture.c) or by the functions here, and executed as
 * copies (execute.c).
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

STANDIN_SITE(cudaGraphCreate)
STANDIN_SITE(cudaGraphDestroy)
STANDIN_SITE(cudaGraphGetNodes)
STANDIN_SITE(cudaGraphNodeGetType)
STANDIN_SITE(cudaGraphAddDependencies)
STANDIN_SITE(cudaGraphAddEmptyNode)

pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- nodes and edges ---- */

static struct body *body_new(const struct nccl4j_standin_work *work, void *spec) {
  struct body *b = malloc(sizeof *b);
  *b = (struct body){1, work, spec};
  return b;
}

void body_hold(struct body *body) { atomic_fetch_add(&body->references, 1); }

void body_put(struct body *body) {
  if (atomic_fetch_sub(&body->references, 1) > 1) return;
  if (body->work->release) body->work->release(body->spec);
  free(body);
}

struct edges *edges_new(size_t count) {
  struct edges *e = calloc(1, sizeof *e + count * sizeof *e->at);
  e->count = count;
  return e;
}

struct edges *edges_copy(const struct edges *edges) {
  struct edges *e = edges_new(edges->count);
  memcpy(e->at, edges->at, edges->count * sizeof *e->at);
  return e;
}

bool edge_on_beginning(const cudaGraphEdgeData *data) { return data->from_port != cudaGraphKernelNodePortDefault; }

/* Of two edges from one node, the one that waits longer is enough. */
struct edges *edges_union(const struct edges *a, const struct edges *b) {
  struct edges *all = edges_new(a->count + b->count);
  memcpy(all->at, a->at, a->count * sizeof *a->at);
  all->count = a->count;
  for (size_t i = 0; i < b->count; i++) {
    size_t j = 0;
    while (j < all->count && all->at[j].from != b->at[i].from) j++;
    if (j == all->count) all->at[all->count++] = b->at[i];
    else if (!edge_on_beginning(&b->at[i].data)) all->at[j] = b->at[i];
  }
  return all;
}

static bool graph_has(const graph_t *g, cudaGraphNode_t node) {
  for (size_t i = 0; i < g->count; i++)
    if ((cudaGraphNode_t)g->at[i] == node) return true;
  return false;
}

cudaError_t edge_check(const graph_t *g, cudaGraphNode_t from, const cudaGraphEdgeData *data, struct edge *edge) {
  if (!graph_has(g, from)) return cudaErrorInvalidValue;
  *edge = (struct edge){.from = (struct node *)from};
  if (!data) return cudaSuccess;
  edge->data = *data;
  bool kernel = edge->from->body->work->type == cudaGraphNodeTypeKernel;
  if (data->from_port > (kernel ? cudaGraphKernelNodePortLaunchCompletion : cudaGraphKernelNodePortDefault))
    return cudaErrorInvalidValue;
  if (data->type > cudaGraphDependencyTypeProgrammatic || data->to_port != 0) return cudaErrorInvalidValue;
  return cudaSuccess;
}

struct node *graph_append(graph_t *g, const struct nccl4j_standin_work *work, void *spec, struct edges *needs) {
  if (g->count == g->capacity) {
    g->capacity = g->capacity ? 2 * g->capacity : 16;
    g->at = realloc(g->at, g->capacity * sizeof(struct node *));
  }
  struct node *n = malloc(sizeof *n);
  *n = (struct node){.graph = g, .index = g->count, .body = body_new(work, spec), .needs = needs};
  g->at[g->count++] = n;
  return n;
}

/* ---- graphs ---- */

static void graph_destroy(void *object) {
  graph_t *g = object;
  for (size_t i = 0; i < g->count; i++) {
    body_put(g->at[i]->body);
    free(g->at[i]->needs);
    free(g->at[i]);
  }
  user_references_free(g->users);
  free(g->at);
  free(g);
}

graph_t *graph_new(void) {
  graph_t *g = calloc(1, sizeof *g);
  object_add(g, KIND_GRAPH, graph_destroy);
  return g;
}

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags) {
  ENTER(cudaGraphCreate);
  if (!graph || flags != 0) RETURN(cudaErrorInvalidValue);
  *graph = (cudaGraph_t)graph_new();
  RETURN(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENTER(cudaGraphDestroy);
  graph_t *g = object_get(graph, KIND_GRAPH);
  if (!g) RETURN(cudaErrorInvalidValue);
  pthread_mutex_lock(&graphs_lock);
  bool capturing = g->capturing;
  pthread_mutex_unlock(&graphs_lock);
  bool mine = !capturing && object_retire(graph, KIND_GRAPH);
  if (mine) object_put(g);
  object_put(g);
  RETURN(mine ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes) {
  ENTER(cudaGraphGetNodes);
  graph_t *g = numNodes ? object_get(graph, KIND_GRAPH) : NULL;
  if (!g) RETURN(cudaErrorInvalidValue);
  pthread_mutex_lock(&graphs_lock);
  for (size_t i = 0; nodes && i < *numNodes; i++) nodes[i] = i < g->count ? (cudaGraphNode_t)g->at[i] : NULL;
  if (!nodes || *numNodes > g->count) *numNodes = g->count;
  pthread_mutex_unlock(&graphs_lock);
  object_put(g);
  RETURN(cudaSuccess);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType) {
  ENTER(cudaGraphNodeGetType);
  if (!node || !pType) RETURN(cudaErrorInvalidValue);
  *pType = ((struct node *)node)->body->work->type;
  RETURN(cudaSuccess);
}

/* ---- building ---- */

/* Needs graphs_lock. */
static cudaError_t add_locked(cudaGraphNode_t *node, graph_t *g, const cudaGraphNode_t *dependencies, size_t count,
                              const struct nccl4j_standin_work *work, void *spec) {
  struct edges *needs = edges_new(count);
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < count && error == cudaSuccess; i++)
    error = edge_check(g, dependencies[i], NULL, &needs->at[i]);
  if (error == cudaSuccess) *node = (cudaGraphNode_t)graph_append(g, work, spec, needs);
  else free(needs);
  return error;
}

cudaError_t graph_add(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
                      const struct nccl4j_standin_work *work, void *spec) {
  cudaError_t error = cudaErrorInvalidValue;
  graph_t *g = node && (dependencies || count == 0) ? object_get(graph, KIND_GRAPH) : NULL;
  if (g) {
    pthread_mutex_lock(&graphs_lock);
    error = add_locked(node, g, dependencies, count, work, spec);
    pthread_mutex_unlock(&graphs_lock);
    object_put(g);
  }
  if (error != cudaSuccess && work->release) work->release(spec);
  return error;
}

static const struct nccl4j_standin_work empty_work = {.type = cudaGraphNodeTypeEmpty};

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                  size_t numDependencies) {
  ENTER(cudaGraphAddEmptyNode);
  RETURN(graph_add(pGraphNode, graph, pDependencies, numDependencies, &empty_work, NULL));
}

/* Needs graphs_lock. */
static cudaError_t add_dependency(graph_t *g, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData *data) {
  struct edge edge;
  cudaError_t error = graph_has(g, to) && from != to ? edge_check(g, from, data, &edge) : cudaErrorInvalidValue;
  if (error != cudaSuccess) return error;
  struct node *n = (struct node *)to;
  for (size_t i = 0; i < n->needs->count; i++)
    if (n->needs->at[i].from == edge.from) return cudaErrorInvalidValue; /* exists already */
  n->needs = realloc(n->needs, sizeof *n->needs + (n->needs->count + 1) * sizeof edge);
  n->needs->at[n->needs->count++] = edge;
  return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *edgeData, size_t numDependencies) {
  ENTER(cudaGraphAddDependencies);
  if (numDependencies && (!from || !to)) RETURN(cudaErrorInvalidValue);
  graph_t *g = object_get(graph, KIND_GRAPH);
  if (!g) RETURN(cudaErrorInvalidValue);
  cudaError_t error = cudaSuccess;
  pthread_mutex_lock(&graphs_lock);
  for (size_t i = 0; i < numDependencies && error == cudaSuccess; i++)
    error = add_dependency(g, from[i], to[i], edgeData ? &edgeData[i] : NULL);
  pthread_mutex_unlock(&graphs_lock);
  object_put(g);
  RETURN(error);
}
