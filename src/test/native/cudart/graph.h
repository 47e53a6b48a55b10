/* Graphs, for the files that build, capture and execute them. */
#ifndef NCCL4J_STANDIN_GRAPH_H
#define NCCL4J_STANDIN_GRAPH_H

#include "cudart.h"

struct graph;

/* The work of a node, shared with the executable graphs that were made of it. */
struct body {
  _Atomic int references;
  const struct nccl4j_standin_work *work;
  void *spec;
};
void body_hold(struct body *body);
void body_put(struct body *body);

/* A dependency. Its data says on what of `from`: its end, or only its beginning. */
struct edge {
  struct node *from;
  cudaGraphEdgeData data;
};

struct edges {
  size_t count;
  struct edge at[];
};
struct edges *edges_new(size_t count);
struct edges *edges_copy(const struct edges *edges);
struct edges *edges_union(const struct edges *a, const struct edges *b);
/* Whether the edge depends on the beginning of a kernel, not on its end. */
bool edge_on_beginning(const cudaGraphEdgeData *data);

struct node {
  struct graph *graph;
  size_t index; /* in the graph */
  bool captured; /* not added by a function of the graph */
  struct body *body;
  struct edges *needs;
};

/* A user object, and how many references to it are held. */
struct user_reference {
  struct user_object *object;
  unsigned int count;
  struct user_reference *next;
};
/* Takes one reference to each object of the list. */
struct user_reference *user_references_copy(const struct user_reference *list);
void user_references_free(struct user_reference *list);

typedef struct graph {
  struct nccl4j_standin_object object;
  struct node **at;
  size_t count, capacity;
  struct user_reference *users;
  bool capturing;
} graph_t;

/* Guards all captures and graphs; never held while work is released. */
extern pthread_mutex_t graphs_lock;

graph_t *graph_new(void);
/* Appends a node that depends on these edges, which it takes, as the spec. Needs graphs_lock. */
struct node *graph_append(graph_t *g, const struct nccl4j_standin_work *work, void *spec, struct edges *needs);
/* Returns the edge from a node of the graph, or an error if there cannot be one. */
cudaError_t edge_check(const graph_t *g, cudaGraphNode_t from, const cudaGraphEdgeData *data, struct edge *edge);
/* Adds a node for a function that builds graphs. Takes the spec, even if it fails. */
cudaError_t graph_add(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies, size_t count,
                      const struct nccl4j_standin_work *work, void *spec);

#endif
