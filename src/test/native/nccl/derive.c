/*
 * Communicators derived from communicators: split and shrink.
 *
 * The participating ranks of a clique register; the last one creates the children.
 */
#include "plugins.h"

#include <stdlib.h>
#include <string.h>

NCCL_FUNCTION(ncclCommSplit)
NCCL_FUNCTION(ncclCommShrink)

/* A split or shrink of a clique while its ranks arrive. */
struct split {
  uint64_t number; /* of a split; a shrink is found by its excluded ranks, see shrink_of */
  int ranks, expected, arrived, left;
  bool complete;
  bool *excluded; /* by rank; NULL for a split */
  bool *joined;     /* by rank; stays set */
  ncclComm_t *comms; /* by rank, from arriving to leaving */
  int *colors, *keys, *new_ranks;
  struct clique **children; /* by rank, a reference each; NULL without a colour */
  struct split *next;
};

static struct split *split_new(struct clique *c) {
  struct split *s = calloc(1, sizeof *s);
  size_t n = (size_t)c->ranks;
  s->ranks = s->expected = c->ranks;
  s->joined = calloc(n, sizeof(bool));
  s->comms = calloc(n, sizeof(ncclComm_t));
  s->colors = calloc(n, sizeof(int));
  s->keys = calloc(n, sizeof(int));
  s->new_ranks = calloc(n, sizeof(int));
  s->children = calloc(n, sizeof(struct clique *));
  s->next = c->splits;
  c->splits = s;
  return s;
}

static struct split *split_numbered(struct clique *c, uint64_t number) {
  for (struct split *s = c->splits; s; s = s->next)
    if (!s->excluded && s->number == number) return s;
  struct split *s = split_new(c);
  s->number = number;
  return s;
}

static bool excludes(const struct split *s, const int *ranks, int count) {
  int found = 0;
  for (int r = 0; r < s->ranks; r++) found += s->excluded[r];
  if (found != count) return false;
  for (int i = 0; i < count; i++)
    if (!s->excluded[ranks[i]]) return false;
  return true;
}

/* Returns the shrink with these excluded ranks that this rank has not joined yet. Shrinks have no numbers: excluded
 * ranks do not take part, so their count would differ. */
static struct split *shrink_of(struct clique *c, int rank, const int *excluded, int count) {
  for (struct split *s = c->splits; s; s = s->next)
    if (s->excluded && !s->joined[rank] && excludes(s, excluded, count)) return s;
  struct split *s = split_new(c);
  s->excluded = calloc((size_t)c->ranks, sizeof(bool));
  for (int i = 0; i < count; i++) s->excluded[excluded[i]] = true;
  s->expected = c->ranks - count;
  for (int r = 0; r < c->ranks; r++) s->colors[r] = s->excluded[r] ? NCCL_SPLIT_NOCOLOR : 0;
  return s;
}

static void split_free(struct split *split) {
  free(split->comms);
  free(split->colors);
  free(split->keys);
  free(split->new_ranks);
  free(split->children);
  free(split->excluded);
  free(split->joined);
  free(split);
}

/* Frees splits that ranks left unfinished because they were aborted. */
void splits_free(struct split *splits) {
  while (splits) {
    struct split *next = splits->next;
    for (int r = 0; r < splits->ranks; r++)
      if (splits->comms[r] && splits->children[r]) clique_put(splits->children[r]);
    split_free(splits);
    splits = next;
  }
}

/* Called when this rank has its child, or gives up. Needs the clique's lock. */
static void split_leave(struct clique *c, struct split *s, int rank) {
  s->comms[rank] = NULL;
  if (!s->complete) s->arrived--;
  else if (++s->left == s->expected) {
    struct split **at = &c->splits;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    split_free(s);
  }
}

/* Creates a clique for the ranks of each colour, ordered by key and then by old rank; number: for their hashes. */
static void split_form(struct clique *c, struct split *s, int number) {
  for (int r = 0; r < c->ranks; r++) {
    if (s->colors[r] == NCCL_SPLIT_NOCOLOR) continue;
    int size = 0, before = 0, first = -1;
    for (int q = 0; q < c->ranks; q++) {
      if (s->colors[q] != s->colors[r]) continue;
      if (first < 0) first = q;
      size++;
      before += s->keys[q] < s->keys[r] || (s->keys[q] == s->keys[r] && q < r);
    }
    s->new_ranks[r] = before;
    s->children[r] = first == r ? clique_new(size) : s->children[first];
    if (first == r) {
      s->children[r]->complete = true;
      s->children[r]->hash = ras_child_hash(c->hash, number, s->colors[r]);
    } else {
      atomic_fetch_add(&s->children[r]->references, 1);
    }
  }
}

ncclResult_t split_begin(struct job *job) {
  ncclComm_t comm = job->comm;
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  struct split *s = job->excluded_count ? shrink_of(c, comm->rank, job->excluded, job->excluded_count)
                                        : split_numbered(c, comm->splits++);
  free(job->excluded);
  job->excluded = NULL;
  job->split = s;
  s->colors[comm->rank] = job->color;
  s->keys[comm->rank] = job->key;
  s->joined[comm->rank] = true;
  if (!comm->silent && !comm->aborted) {
    s->comms[comm->rank] = comm;
    s->arrived++;
  }
  if (s->arrived == s->expected) {
    split_form(c, s, s->excluded ? 0 : (int)(comm->splits + comm->grows));
    s->complete = true;
    clique_wake(c);
  }
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}

/* Returns the communicator with a reference for the caller. */
static ncclComm_t split_child(struct job *job, struct clique *child, int rank) {
  ncclComm_t comm = comm_new(child, rank, job->comm->device, &job->config);
  object_hold(comm);
  pthread_mutex_lock(&child->lock);
  child->members[rank] = comm;
  pthread_mutex_unlock(&child->lock);
  plugins_open(comm);
  return comm;
}

ncclResult_t split_finish(struct job *job) {
  ncclComm_t comm = job->comm;
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  struct split *s = job->split;
  while (!comm->aborted && !s->complete) pthread_cond_wait(&comm->changed, &c->lock);
  struct clique *child = s->complete ? s->children[comm->rank] : NULL;
  int rank = s->new_ranks[comm->rank];
  bool aborted = comm->aborted;
  if (s->comms[comm->rank]) split_leave(c, s, comm->rank);
  pthread_mutex_unlock(&c->lock);
  if (aborted) {
    if (child) clique_put(child);
    warn("the split was aborted");
    return ncclInternalError;
  }
  ncclComm_t made = child ? split_child(job, child, rank) : NULL;
  pthread_mutex_lock(&c->lock);
  if (!comm->aborted) *job->out = made; /* after an abort the memory may have been freed */
  else aborted = true;
  pthread_mutex_unlock(&c->lock);
  if (aborted && made) comm_abort(made);
  if (made) object_put(made);
  return ncclSuccess;
}

static ncclResult_t split_job(ncclComm_t comm, int color, int key, ncclComm_t *out, const ncclConfig_t *given,
                              struct job **made) {
  ncclConfig_t config;
  ncclResult_t result = argument_present(out, "CommSplit", "newcomm");
  if (result == ncclSuccess) *out = NULL;
  if (result == ncclSuccess) result = config_take(&config, given, &comm->config);
  if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    warn("CommSplit : invalid color %d", color);
    result = ncclInvalidArgument;
  }
  if (result != ncclSuccess) return result;
  struct job *job = calloc(1, sizeof *job);
  *job = (struct job){.kind = JOB_SPLIT, .comm = comm, .color = color, .key = key, .out = out, .config = config};
  *made = job;
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  ENTER_COLLECTED(ncclCommSplit);
  ncclComm_t comm;
  struct job *job;
  ncclResult_t result = require_cuda();
  if (result == ncclSuccess) result = comm_get_ready(handle, "CommSplit", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  result = split_job(comm, color, key, newcomm, config, &job);
  if (result != ncclSuccess) {
    object_put(comm);
    return group_refuse(result);
  }
  result = group_submit(job);
  return result == ncclInProgress && pitfall_on(4) ? ncclSuccess : result;
}

/* ---- shrink ---- */

static int by_number(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

/* Sorts the caller's array, as the real library does. */
static ncclResult_t check_excluded(ncclComm_t comm, int *excluded, int count) {
  ncclResult_t result = argument_present(excluded, "CommShrink", "excludeRanksList");
  if (result != ncclSuccess) return result;
  if (count <= 0) {
    warn("CommShrink : %d ranks are excluded; it needs at least one", count);
    return ncclInvalidArgument;
  }
  qsort(excluded, (size_t)count, sizeof *excluded, by_number);
  for (int i = 0; i < count; i++) {
    if (excluded[i] < 0 || excluded[i] >= comm->clique->ranks || excluded[i] == comm->rank) {
      warn("CommShrink : rank %d of %d excludes rank %d", comm->rank, comm->clique->ranks, excluded[i]);
      return ncclInvalidArgument;
    }
  }
  return ncclSuccess;
}

static ncclResult_t shrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *out, const ncclConfig_t *config) {
  struct job *job;
  ncclResult_t result = check_excluded(comm, excluded, count);
  if (result == ncclSuccess) result = split_job(comm, 0, comm->rank, out, config, &job);
  if (result != ncclSuccess) {
    object_put(comm);
    return group_refuse(result);
  }
  job->excluded = malloc((size_t)count * sizeof *excluded);
  memcpy(job->excluded, excluded, (size_t)count * sizeof *excluded);
  job->excluded_count = count;
  return group_submit(job);
}

ncclResult_t ncclCommShrink(ncclComm_t handle, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags) {
  ENTER_COLLECTED(ncclCommShrink);
  ncclComm_t comm;
  ncclResult_t result = require_cuda();
  if (result == ncclSuccess && (shrinkFlags & NCCL_SHRINK_ABORT)) {
    result = comm_get(handle, "CommShrink", &comm);
    if (result == ncclSuccess) {
      operations_cancel(comm);
      object_put(comm);
    }
  }
  if (result == ncclSuccess) result = comm_get_ready(handle, "CommShrink", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  result = shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config);
  return result == ncclInProgress && pitfall_on(4) ? ncclSuccess : result;
}
