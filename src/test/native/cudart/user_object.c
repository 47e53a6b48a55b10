/*
 * User objects: reference counts with a destructor, which graphs keep alive while they exist or run. The destructors
 * run one after the other, on a thread of their own, as CUDA permits.
 */
#include "graph.h"

#include <limits.h>
#include <stdlib.h>

STANDIN_SITE(cudaUserObjectCreate)
STANDIN_SITE(cudaGraphRetainUserObject)

struct user_object {
  struct nccl4j_standin_object object;
  unsigned int count; /* references of the program and of graphs, under lock */
  cudaHostFn_t destroy;
  void *data;
  struct user_object *next; /* to be destroyed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct user_object *doomed, **doomed_end = &doomed;
static bool destroying;

static void *destroy_all(void *nothing) {
  pthread_mutex_lock(&lock);
  in_host_function = true;
  while (doomed) {
    struct user_object *o = doomed;
    doomed = o->next;
    if (!doomed) doomed_end = &doomed;
    pthread_mutex_unlock(&lock);
    o->destroy(o->data);
    object_put(o);
    pthread_mutex_lock(&lock);
  }
  destroying = false;
  pthread_mutex_unlock(&lock);
  return nothing;
}

/* Needs the lock. */
static void doom(struct user_object *o) {
  object_retire(o, KIND_USER_OBJECT);
  *doomed_end = o;
  doomed_end = &o->next;
  if (destroying) return;
  destroying = nccl4j_standin_thread(destroy_all, NULL);
  if (!destroying) abort(); /* no memory for a thread */
}

static void release(struct user_object *o, unsigned int count) {
  pthread_mutex_lock(&lock);
  o->count -= count;
  if (o->count == 0) doom(o);
  pthread_mutex_unlock(&lock);
}

static bool retain(struct user_object *o, unsigned int count) {
  pthread_mutex_lock(&lock);
  bool fits = o->count > 0 && count <= INT_MAX - o->count;
  if (fits) o->count += count;
  pthread_mutex_unlock(&lock);
  return fits;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object_out, void *ptr, cudaHostFn_t destroy,
                                 unsigned int initialRefcount, unsigned int flags) {
  ENTER(cudaUserObjectCreate);
  if (!object_out || !destroy || flags != cudaUserObjectNoDestructorSync) RETURN(cudaErrorInvalidValue);
  if (initialRefcount == 0 || initialRefcount > INT_MAX) RETURN(cudaErrorInvalidValue);
  struct user_object *o = calloc(1, sizeof *o);
  o->count = initialRefcount;
  o->destroy = destroy;
  o->data = ptr;
  object_add(o, KIND_USER_OBJECT, free);
  *object_out = (cudaUserObject_t)o;
  RETURN(cudaSuccess);
}

/* ---- references of graphs ---- */

static struct user_reference *reference_to(struct user_reference *list, const struct user_object *o) {
  while (list && list->object != o) list = list->next;
  return list;
}

static void reference_add(struct user_reference **list, struct user_object *o, unsigned int count) {
  struct user_reference *r = reference_to(*list, o);
  if (!r) {
    r = calloc(1, sizeof *r);
    *r = (struct user_reference){.object = o, .next = *list};
    *list = r;
  }
  r->count += count;
}

struct user_reference *user_references_copy(const struct user_reference *list) {
  struct user_reference *copy = NULL;
  for (; list; list = list->next) {
    retain(list->object, 1);
    reference_add(&copy, list->object, 1);
  }
  return copy;
}

void user_references_free(struct user_reference *list) {
  while (list) {
    struct user_reference *r = list;
    list = r->next;
    release(r->object, r->count);
    free(r);
  }
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  ENTER(cudaGraphRetainUserObject);
  if (count == 0 || count > INT_MAX || flags > cudaGraphUserObjectMove) RETURN(cudaErrorInvalidValue);
  graph_t *g = object_get(graph, KIND_GRAPH);
  struct user_object *o = object_get(object, KIND_USER_OBJECT);
  bool retained = g && o && (flags == cudaGraphUserObjectMove || retain(o, count));
  if (retained) {
    pthread_mutex_lock(&graphs_lock);
    reference_add(&g->users, o, count);
    pthread_mutex_unlock(&graphs_lock);
  }
  if (g) object_put(g);
  if (o) object_put(o);
  RETURN(retained ? cudaSuccess : cudaErrorInvalidValue);
}
