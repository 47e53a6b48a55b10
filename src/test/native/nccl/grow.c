/*
 * Grow: the ranks of a clique and new ranks that have an id join a new clique.
 *
 * The ranks of the old clique, except the one that created the id, take the id from the clique and wait until it is
 * there, as the boundary ranks do in the real library.
 */
#include "clique.h"

#include <stdlib.h>
#include <string.h>

NCCL_FUNCTION(ncclCommGetUniqueId)
NCCL_FUNCTION(ncclCommGrow)

/* The id of one grow of a clique. */
struct growth {
  ncclUniqueId id;
  int maker, old_ranks;
  uint64_t number, splits;
  struct growth *next;
  struct growth *next_known;
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct growth *known; /* of all cliques, for new ranks */

void growths_free(struct growth *list) {
  while (list) {
    struct growth *next = list->next;
    pthread_mutex_lock(&known_lock);
    struct growth **at = &known;
    while (*at && *at != list) at = &(*at)->next_known;
    if (*at) *at = list->next_known;
    pthread_mutex_unlock(&known_lock);
    free(list);
    list = next;
  }
}

/* Needs the clique's lock. */
static struct growth *growth_numbered(struct clique *c, uint64_t number) {
  for (struct growth *g = c->growths; g; g = g->next)
    if (g->number == number) return g;
  return NULL;
}

static ncclResult_t growth_new(ncclComm_t comm, ncclUniqueId *id) {
  struct clique *c = comm->clique;
  for (struct growth *g = c->growths; g; g = g->next) {
    if (id_spent(&g->id)) continue;
    warn("CommGetUniqueId : an id of rank %d has not been consumed", g->maker);
    return ncclInvalidUsage;
  }
  struct growth *g = calloc(1, sizeof *g);
  id_make(&g->id);
  g->maker = comm->rank;
  g->old_ranks = c->ranks;
  g->number = comm->grows;
  g->splits = comm->splits;
  g->next = c->growths;
  c->growths = g;
  pthread_mutex_lock(&known_lock);
  g->next_known = known;
  known = g;
  pthread_mutex_unlock(&known_lock);
  *id = g->id;
  clique_wake(c);
  return ncclSuccess;
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t handle, ncclUniqueId *uniqueId) {
  ENTER(ncclCommGetUniqueId);
  ncclComm_t comm;
  ncclResult_t result = comm_get_ready(handle, "CommGetUniqueId", &comm);
  if (result != ncclSuccess) return result;
  result = argument_present(uniqueId, "CommGetUniqueId", "uniqueId");
  pthread_mutex_lock(&comm->clique->lock);
  if (result == ncclSuccess) result = growth_new(comm, uniqueId);
  pthread_mutex_unlock(&comm->clique->lock);
  object_put(comm);
  return result;
}

/* Waits for the id and copies it. Needs the clique's lock. */
static ncclResult_t find_id(ncclComm_t comm, const ncclUniqueId *given, ncclUniqueId *id) {
  struct growth *g;
  uint64_t number = comm->grows++;
  while (!(g = growth_numbered(comm->clique, number)) && !comm->aborted)
    pthread_cond_wait(&comm->changed, &comm->clique->lock);
  if (!g) {
    warn("CommGrow : aborted while waiting for the id");
    return ncclInternalError;
  }
  bool maker = g->maker == comm->rank;
  if (maker != (given != NULL) || (given && memcmp(given, &g->id, sizeof *given) != 0)) {
    warn("CommGrow : the rank that made the id passes it, and no other existing rank does");
    return ncclInvalidArgument;
  }
  if (g->splits != comm->splits) {
    warn("CommGrow : magic mismatch, there was a split since the id was made");
    return ncclInvalidArgument;
  }
  *id = g->id;
  return ncclSuccess;
}

static ncclResult_t grow_existing(ncclComm_t handle, int ranks, const ncclUniqueId *given, int rank, ncclComm_t *out,
                                  const ncclConfig_t *given_config) {
  ncclComm_t comm;
  ncclUniqueId id;
  ncclConfig_t config;
  ncclResult_t result = comm_get_ready(handle, "CommGrow", &comm);
  if (result != ncclSuccess) return result;
  if (rank != -1 || ranks <= comm->clique->ranks) {
    warn("CommGrow : existing ranks pass rank -1 and more ranks than there are, got %d and %d", rank, ranks);
    result = ncclInvalidArgument;
  }
  pthread_mutex_lock(&comm->clique->lock);
  if (result == ncclSuccess) result = find_id(comm, given, &id);
  pthread_mutex_unlock(&comm->clique->lock);
  if (result == ncclSuccess) result = config_take(&config, given_config, &comm->config);
  if (result == ncclSuccess) result = init_on(out, ranks, &id, 1, comm->rank, &config, comm->device);
  object_put(comm);
  return result;
}

static ncclResult_t grow_new(int ranks, const ncclUniqueId *id, int rank, ncclComm_t *out, const ncclConfig_t *config) {
  ncclResult_t result = argument_present(id, "CommGrow", "uniqueId");
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&known_lock);
  struct growth *g = known;
  while (g && memcmp(&g->id, id, sizeof *id) != 0) g = g->next_known;
  int old_ranks = g ? g->old_ranks : -1;
  pthread_mutex_unlock(&known_lock);
  if (old_ranks < 0 || rank < old_ranks) {
    warn("CommGrow : new rank %d with %s id of a communicator with %d ranks", rank, old_ranks < 0 ? "no" : "the",
         old_ranks);
    return ncclInvalidArgument;
  }
  result = require_cuda();
  return result == ncclSuccess ? init_on(out, ranks, id, 1, rank, config, nccl4j_standin_current_device()) : result;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config) {
  ENTER_COLLECTED(ncclCommGrow);
  ncclResult_t result = argument_present(newcomm, "CommGrow", "newcomm");
  if (result == ncclSuccess) *newcomm = NULL;
  if (result == ncclSuccess)
    result = comm ? grow_existing(comm, nRanks, uniqueId, rank, newcomm, config)
                  : grow_new(nRanks, uniqueId, rank, newcomm, config);
  if (result != ncclSuccess && result != ncclInProgress) return group_refuse(result);
  return result == ncclInProgress && pitfall_on(4) ? ncclSuccess : result;
}
