/*
 * Communicators: initialisation, finalize, destroy, abort.
 *
 * A job (initialisation, split, finalize, destroy and others) has a begin that never waits and a finish that may, so
 * that one thread can drive several ranks of a group. Every wait here is on the rank's own condition, which an abort
 * signals.
 */
#include "plugins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

NCCL_FUNCTION(ncclGetUniqueId)
NCCL_FUNCTION(ncclCommInitRank)
NCCL_FUNCTION(ncclCommInitAll)
NCCL_FUNCTION(ncclCommInitRankConfig)
NCCL_FUNCTION(ncclCommInitRankScalable)
NCCL_FUNCTION(ncclCommFinalize)
NCCL_FUNCTION(ncclCommDestroy)
NCCL_FUNCTION(ncclCommAbort)
NCCL_FUNCTION(ncclCommCount)
NCCL_FUNCTION(ncclCommUserRank)
NCCL_FUNCTION(ncclCommCuDevice)
NCCL_FUNCTION(ncclCommGetAsyncError)
NCCL_FUNCTION(ncclCommQueryProperties)

/* ---- unique ids, and the cliques that ranks may still join ---- */

/* The content of a unique id. It is valid in the process that created it, for one clique. */
struct identity {
  char mark[32];
  unsigned char process[16];
  uint64_t number;
};
#define MARK "nccl4j stand-in unique id"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct clique *open_cliques;
static unsigned char process[16];
static bool process_known;
static bool *spent; /* by the id's number */
static uint64_t ids_made, spent_capacity;
static atomic_uint last_ordinal;

void id_make(ncclUniqueId *id) {
  struct identity identity = {.mark = MARK};
  pthread_mutex_lock(&registry_lock);
  if (!process_known) process_known = getrandom(process, sizeof process, 0) == (ssize_t)sizeof process;
  memcpy(identity.process, process, sizeof process);
  identity.number = ids_made++;
  if (ids_made > spent_capacity) {
    spent_capacity = spent_capacity ? 2 * spent_capacity : 64;
    spent = realloc(spent, spent_capacity * sizeof *spent);
  }
  spent[identity.number] = false;
  pthread_mutex_unlock(&registry_lock);
  memset(id, 0, sizeof *id);
  memcpy(id->internal, &identity, sizeof identity);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
  ENTER(ncclGetUniqueId);
  environment_open();
  ncclResult_t result = argument_present(uniqueId, "GetUniqueId", "out");
  if (result == ncclSuccess) id_make(uniqueId);
  return result;
}

struct clique *clique_new(int ranks) {
  struct clique *c = calloc(1, sizeof *c);
  atomic_init(&c->references, 1);
  pthread_mutex_init(&c->lock, NULL);
  c->ranks = ranks;
  c->members = calloc((size_t)ranks, sizeof(ncclComm_t));
  return c;
}

static void close_registration(struct clique *c) {
  for (struct clique **at = &open_cliques; *at; at = &(*at)->next) {
    if (*at != c) continue;
    *at = c->next;
    return;
  }
}

void clique_put(struct clique *c) {
  pthread_mutex_lock(&registry_lock); /* no thread may find it meanwhile */
  bool last = atomic_fetch_sub(&c->references, 1) == 1;
  if (last) close_registration(c);
  pthread_mutex_unlock(&registry_lock);
  if (!last) return;
  splits_free(c->splits);
  window_registrations_free(c->window_registrations);
  slots_free(c->slots);
  growths_free(c->growths);
  pthread_mutex_destroy(&c->lock);
  free(c->members);
  free(c->ids);
  free(c);
}

void clique_wake(struct clique *c) {
  for (int r = 0; r < c->ranks; r++)
    if (c->members[r]) pthread_cond_broadcast(&c->members[r]->changed);
}

static struct identity identity_of(const ncclUniqueId *id) {
  struct identity identity;
  memcpy(&identity, id->internal, sizeof identity);
  return identity;
}

/* Needs the registry's lock. */
static ncclResult_t id_check(const ncclUniqueId *id) {
  struct identity identity = identity_of(id);
  if (memcmp(identity.mark, MARK, sizeof MARK) != 0 || identity.number >= ids_made ||
      memcmp(identity.process, process, sizeof process) != 0) {
    warn("the unique id was not made by this process; ranks can only be threads of one process here");
    return ncclInvalidArgument;
  }
  if (spent[identity.number]) {
    warn("the unique id has been used: all ranks of its communicator have joined");
    return ncclSystemError;
  }
  return ncclSuccess;
}

bool id_spent(const ncclUniqueId *id) {
  pthread_mutex_lock(&registry_lock);
  bool answer = spent[identity_of(id).number];
  pthread_mutex_unlock(&registry_lock);
  return answer;
}

/* Finds the clique by the first of its ids; the first rank creates it. */
static ncclResult_t clique_of(const ncclUniqueId *ids, int count, int ranks, struct clique **clique) {
  ncclResult_t result = ncclSuccess;
  pthread_mutex_lock(&registry_lock);
  struct clique *c = open_cliques;
  while (c && memcmp(&c->ids[0], &ids[0], sizeof *ids) != 0) c = c->next;
  for (int i = 0; i < count && result == ncclSuccess; i++) result = id_check(&ids[i]);
  if (result != ncclSuccess) {
    /* id_check has reported it */
  } else if (c && (c->id_count != count || memcmp(c->ids, ids, (size_t)count * sizeof *ids) != 0)) {
    warn("ranks disagree on the unique ids, or on their order");
    result = ncclInvalidUsage;
  } else if (c && c->ranks != ranks) {
    warn("ranks disagree on the number of ranks: %d here, %d elsewhere", ranks, c->ranks);
    result = ncclInvalidUsage;
  } else if (c) {
    atomic_fetch_add(&c->references, 1);
  } else {
    c = clique_new(ranks);
    c->ids = malloc((size_t)count * sizeof *ids);
    memcpy(c->ids, ids, (size_t)count * sizeof *ids);
    c->id_count = count;
    c->hash = ras_id_hash(ids);
    c->next = open_cliques;
    open_cliques = c;
  }
  pthread_mutex_unlock(&registry_lock);
  *clique = result == ncclSuccess ? c : NULL;
  return result;
}

/* ---- one rank ---- */

static void comm_destroy(void *object) {
  ncclComm_t comm = object;
  ras_remove(comm);
  plugins_close(comm);
  redops_free(comm->redops);
  registrations_free(comm->registrations);
  windows_free(comm->windows);
  pthread_cond_destroy(&comm->changed);
  clique_put(comm->clique);
  free(comm->sent);
  free(comm->received);
  free(comm->signals);
  free(comm->send_links);
  free(comm->receive_links);
  free(comm->net_name);
  free(comm->name_then);
  free(comm);
}

/* Takes the clique's reference. */
ncclComm_t comm_new(struct clique *clique, int rank, int device, const ncclConfig_t *config) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  comm->clique = clique;
  comm->rank = rank;
  comm->device = device;
  comm->ordinal = atomic_fetch_add(&last_ordinal, 1);
  comm->config = *config;
  if (config->netName) comm->config.netName = comm->net_name = strdup(config->netName);
  if (config->commName) comm->name_then = strdup(config->commName);
  const char *check = variable("NCCL_CHECK_POINTERS");
  comm->check_pointers = check && atoi(check) != 0;
  comm->sent = calloc((size_t)clique->ranks, sizeof *comm->sent);
  comm->received = calloc((size_t)clique->ranks, sizeof *comm->received);
  comm->signals = calloc((size_t)clique->ranks, sizeof *comm->signals);
  comm->send_links = calloc((size_t)clique->ranks, sizeof *comm->send_links);
  comm->receive_links = calloc((size_t)clique->ranks, sizeof *comm->receive_links);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&comm->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  object_add(comm, KIND_COMMUNICATOR, comm_destroy);
  ras_add(comm);
  return comm;
}

ncclResult_t comm_get(ncclComm_t handle, const char *function, ncclComm_t *comm) {
  *comm = NULL;
  ncclResult_t result = argument_present(handle, function, "comm");
  if (result != ncclSuccess) return result;
  *comm = object_get(handle, KIND_COMMUNICATOR);
  if (*comm) return ncclSuccess;
  warn("%s : comm %p is not a live communicator (destroyed, aborted or corrupted)", function, (void *)handle);
  return ncclInvalidArgument;
}

/* Needs the clique's lock. */
static ncclResult_t readiness(ncclComm_t comm, const char *function) {
  if (comm->in_progress > 0 && comm->failure == ncclSuccess) {
    warn("%s : Attempt to use communicator before the previous operation returned ncclSuccess", function);
    return ncclInvalidArgument;
  }
  if (comm->failure != ncclSuccess) warn("%s : the communicator failed earlier with %d", function, comm->failure);
  return comm->failure;
}

ncclResult_t comm_get_ready(ncclComm_t handle, const char *function, ncclComm_t *comm) {
  ncclResult_t result = comm_get(handle, function, comm);
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&(*comm)->clique->lock);
  result = readiness(*comm, function);
  if (result == ncclSuccess && ((*comm)->finalized || (*comm)->destroying)) {
    warn("%s : the communicator has been finalized or destroyed", function);
    result = ncclInvalidUsage;
  }
  pthread_mutex_unlock(&(*comm)->clique->lock);
  if (result == ncclSuccess) {
    if (exclusive_begin(*comm)) exclusive_end(*comm);
    else result = ncclInternalError;
  }
  if (result != ncclSuccess) object_put(*comm);
  return result;
}

ncclResult_t comm_get_usable(ncclComm_t handle, const char *function, ncclComm_t *comm) {
  ncclResult_t result = comm_get_ready(handle, function, comm);
  if (result != ncclSuccess) return result;
  pthread_mutex_lock(&(*comm)->clique->lock);
  const char *why = (*comm)->revoked ? "revoked" : (*comm)->suspended ? "suspended" : NULL;
  pthread_mutex_unlock(&(*comm)->clique->lock);
  if (!why) return ncclSuccess;
  warn("%s : the communicator is %s", function, why);
  object_put(*comm);
  return ncclInvalidUsage;
}

/* ---- configuration ---- */

static ncclResult_t check_range(const char *name, int value, int low, int high) {
  if (value == NCCL_CONFIG_UNDEF_INT || (value >= low && value <= high)) return ncclSuccess;
  warn("Invalid config %s attribute value %d", name, value);
  return ncclInvalidArgument;
}

static ncclResult_t config_check(const ncclConfig_t *c) {
  ncclResult_t result = check_range("blocking", c->blocking, 0, 1);
  if (result == ncclSuccess) result = check_range("cgaClusterSize", c->cgaClusterSize, 0, 8);
  if (result == ncclSuccess) result = check_range("minCTAs", c->minCTAs, 1, INT_MAX);
  if (result == ncclSuccess) result = check_range("maxCTAs", c->maxCTAs, 1, INT_MAX);
  if (result == ncclSuccess) result = check_range("splitShare", c->splitShare, 0, 1);
  if (result == ncclSuccess) result = check_range("collnetEnable", c->collnetEnable, 0, 1);
  if (result == ncclSuccess) result = check_range("policy", c->CTAPolicy, 0, 3);
  if (result == ncclSuccess) result = check_range("shrinkShare", c->shrinkShare, 0, 1);
  if (result == ncclSuccess) result = check_range("nvlsCTAs", c->nvlsCTAs, 1, INT_MAX);
  if (result == ncclSuccess) result = check_range("nChannelsPerNetPeer", c->nChannelsPerNetPeer, 1, 64);
  if (result == ncclSuccess) result = check_range("nvlinkCentricSched", c->nvlinkCentricSched, 0, 1);
  if (result == ncclSuccess) result = check_range("graphUsageMode", c->graphUsageMode, 0, 2);
  if (result == ncclSuccess) result = check_range("numRmaCtx", c->numRmaCtx, 0, INT_MAX);
  if (result == ncclSuccess) result = check_range("maxP2pPeers", c->maxP2pPeers, 1, INT_MAX);
  if (result == ncclSuccess) result = check_range("graphStreamOrdering", c->graphStreamOrdering, 0, 1);
  /* Compared even if the maximum is not set, as in the real library: INT_MIN is less than any minimum. */
  if (result == ncclSuccess && c->minCTAs > c->maxCTAs) {
    warn("Invalid config min/max channels attribute value %d/%d", c->minCTAs, c->maxCTAs);
    result = ncclInvalidArgument;
  }
  return result;
}

ncclResult_t config_take(ncclConfig_t *own, const ncclConfig_t *given, const ncclConfig_t *inherited) {
  static const ncclConfig_t unset = NCCL_CONFIG_INITIALIZER;
  *own = unset;
  if (given) {
    if (given->magic != NCCL_API_MAGIC) {
      warn("ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
      return ncclInvalidArgument;
    }
    size_t known = release_config_bytes();
    memcpy(own, given, given->size < known ? given->size : known);
    config_note(own);
    ncclResult_t result = config_check(own);
    if (result != ncclSuccess) return result;
  }
  if (inherited) {
    if (own->blocking == NCCL_CONFIG_UNDEF_INT) own->blocking = inherited->blocking;
    if (own->splitShare == NCCL_CONFIG_UNDEF_INT) own->splitShare = inherited->splitShare;
    if (!own->netName) own->netName = inherited->netName;
    if (!own->commName) own->commName = inherited->commName;
  }
  const char *forced = variable("NCCL_COMM_BLOCKING");
  if (forced && (strcmp(forced, "0") == 0 || strcmp(forced, "1") == 0)) own->blocking = atoi(forced);
  if (own->blocking == NCCL_CONFIG_UNDEF_INT) own->blocking = 1;
  return ncclSuccess;
}

/* ---- initialisation ---- */

static ncclResult_t check_ranks(int ranks, int rank) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return ncclSuccess;
  warn("Invalid rank requested : %d/%d", rank, ranks);
  return ncclInvalidArgument;
}

ncclResult_t init_on(ncclComm_t *out, int ranks, const ncclUniqueId *ids, int id_count, int rank,
                     const ncclConfig_t *given, int device) {
  ncclConfig_t config;
  struct clique *clique;
  ncclResult_t result = argument_present(out, "CommInitRank", "newcomm");
  if (result == ncclSuccess) *out = NULL;
  if (result == ncclSuccess) result = config_take(&config, given, NULL);
  if (result == ncclSuccess) result = check_ranks(ranks, rank);
  if (result == ncclSuccess) result = clique_of(ids, id_count, ranks, &clique);
  if (result != ncclSuccess) return group_refuse(result);
  nccl4j_standin_use_device(device);
  ncclComm_t comm = comm_new(clique, rank, device, &config);
  *out = comm;
  struct job *job = calloc(1, sizeof *job);
  job->kind = JOB_INIT;
  job->comm = comm;
  object_hold(comm);
  return group_submit(job);
}

static ncclResult_t init(ncclComm_t *out, int ranks, const ncclUniqueId *ids, int id_count, int rank,
                         const ncclConfig_t *config) {
  ncclResult_t result = require_cuda();
  if (result != ncclSuccess) return group_refuse(result);
  result = init_on(out, ranks, ids, id_count, rank, config, nccl4j_standin_current_device());
  device_changes();
  return result;
}

/* Pitfall 3: if the first CUDA call fails, the group that the function opened internally stays open. */
static ncclResult_t leaving_group_open(ncclResult_t result) {
  if (result == ncclUnhandledCudaError && pitfall_on(3)) group_leak_depth();
  return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int rank) {
  ENTER_COLLECTED(ncclCommInitRank);
  return init(newcomm, nranks, &commId, 1, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config) {
  int forced;
  if (nccl4j_standin_enter(&site_ncclCommInitRankConfig, &forced))
    return leaving_group_open(group_refuse(forced_failure("ncclCommInitRankConfig", forced)));
  return leaving_group_open(init(newcomm, nranks, &commId, 1, rank, config));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config) {
  int forced;
  if (nccl4j_standin_enter(&site_ncclCommInitRankScalable, &forced))
    return leaving_group_open(group_refuse(forced_failure("ncclCommInitRankScalable", forced)));
  ncclResult_t result = argument_present(commIds, "CommInitRankScalable", "commIds");
  if (result == ncclSuccess && (nId < 1 || nId > nranks)) {
    warn("improper usage of ncclCommInitRankScalable: nId = %d, nranks = %d", nId, nranks);
    result = ncclInvalidArgument;
  }
  if (result != ncclSuccess) return group_refuse(result);
  return leaving_group_open(init(newcomm, nranks, commIds, nId, myrank, config));
}

static ncclResult_t check_devices(int count, const int *devices) {
  int existing = nccl4j_standin_device_count();
  for (int i = 0; i < count; i++) {
    int device = devices ? devices[i] : i;
    if (device < 0 || device >= existing) {
      warn("ncclCommInitAll : invalid device %d (there are %d)", device, existing);
      return devices ? ncclInvalidArgument : ncclInvalidUsage;
    }
    for (int j = 0; devices && j < i; j++) {
      if (devices[j] != device) continue;
      warn("ncclCommInitAll : device %d is listed twice", device);
      return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist) {
  ENTER(ncclCommInitAll);
  ncclResult_t result = require_cuda();
  if (result == ncclSuccess) result = argument_present(comms, "CommInitAll", "comms");
  if (result == ncclSuccess && ndev < 1) {
    warn("Invalid device count requested : %d", ndev);
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) result = check_devices(ndev, devlist);
  if (result != ncclSuccess) return result;
  ncclUniqueId id;
  id_make(&id);
  group_start();
  for (int i = 0; i < ndev; i++) init_on(&comms[i], ndev, &id, 1, i, NULL, devlist ? devlist[i] : i);
  return group_end();
}

static ncclResult_t duplicate_device(struct clique *c) {
  const char *allowed = variable("NCCL_MULTI_RANK_GPU_ENABLE");
  if (allowed && atoi(allowed) != 0) return ncclSuccess;
  for (int a = 0; a < c->ranks; a++) {
    for (int b = 0; b < a; b++) {
      if (c->members[a]->device != c->members[b]->device) continue;
      warn("Duplicate GPU detected : rank %d and rank %d both on CUDA device %d "
           "(NCCL_MULTI_RANK_GPU_ENABLE=1 allows it)",
           b, a, c->members[a]->device);
      return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

/* Called when the last rank has joined. Needs the clique's lock. */
static void clique_complete(struct clique *c) {
  c->complete = true;
  c->failure = duplicate_device(c);
  int rank, result;
  if (c->failure == ncclSuccess && failing_rank(&rank, &result) && rank < c->ranks && c->ranks > 1) {
    c->members[rank]->silent = true;
    c->members[rank]->failure = (ncclResult_t)result;
  }
  clique_wake(c);
}

static void close_open_clique(struct clique *c) {
  pthread_mutex_lock(&registry_lock);
  close_registration(c);
  for (int i = 0; i < c->id_count; i++) spent[identity_of(&c->ids[i]).number] = true;
  pthread_mutex_unlock(&registry_lock);
}

static ncclResult_t init_begin(ncclComm_t comm) {
  struct clique *c = comm->clique;
  if (comm->rank == absent_rank()) return ncclSuccess;
  ncclResult_t result = init_stack_use();
  if (result != ncclSuccess) return result;
  bool last = false;
  pthread_mutex_lock(&c->lock);
  if (c->complete || c->members[comm->rank]) {
    warn("rank %d of %d joined twice", comm->rank, c->ranks);
    result = ncclInvalidUsage;
  } else if (!comm->aborted) {
    c->members[comm->rank] = comm;
    last = ++c->joined == c->ranks;
    if (last) clique_complete(c);
  }
  pthread_mutex_unlock(&c->lock);
  if (last) close_open_clique(c);
  return result;
}

static ncclResult_t init_finish(ncclComm_t comm) {
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  while (!comm->aborted && !(c->complete && c->members[comm->rank] == comm))
    pthread_cond_wait(&comm->changed, &c->lock);
  ncclResult_t result = comm->aborted ? ncclInternalError : c->failure;
  if (comm->aborted) warn("the initialisation of rank %d was aborted", comm->rank);
  pthread_mutex_unlock(&c->lock);
  if (result == ncclSuccess) plugins_open(comm);
  return result;
}

/* ---- the end of a communicator ---- */

static ncclResult_t wait_for_executions(ncclComm_t comm) {
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  while (!comm->aborted && comm->executions > 0) pthread_cond_wait(&comm->changed, &c->lock);
  ncclResult_t result = comm->aborted ? ncclInternalError : comm->failure;
  pthread_mutex_unlock(&c->lock);
  return result;
}

/* Waits until no graph has operations of the communicator. Needs the clique's lock. The real library ignores the abort
 * flag here. It does not wait for graphs of a revoked communicator, and so frees it too early. */
static void wait_for_graphs(ncclComm_t comm) {
  while (comm->persistent > 0) pthread_cond_wait(&comm->changed, &comm->clique->lock);
}

static ncclResult_t finalize_finish(ncclComm_t comm) {
  ncclResult_t result = wait_for_executions(comm);
  pthread_mutex_lock(&comm->clique->lock);
  wait_for_graphs(comm);
  pthread_mutex_unlock(&comm->clique->lock);
  return result;
}

/* Removes the rank from its clique. Needs the clique's lock. */
static void leave(ncclComm_t comm) {
  struct clique *c = comm->clique;
  operations_withdraw(comm);
  while (comm->running > 0) pthread_cond_wait(&comm->changed, &c->lock);
  if (c->members[comm->rank] != comm) return;
  c->members[comm->rank] = NULL;
  if (!c->complete) c->joined--;
  pthread_cond_broadcast(&comm->changed);
}

static ncclResult_t destroy_begin(ncclComm_t comm) {
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  c->leaving++;
  clique_wake(c);
  pthread_mutex_unlock(&c->lock);
  return ncclSuccess;
}

static void destroy_finish(ncclComm_t comm) {
  struct clique *c = comm->clique;
  wait_for_executions(comm);
  pthread_mutex_lock(&c->lock);
  while (pitfall_on(8) && !comm->aborted && c->leaving < c->ranks) pthread_cond_wait(&comm->changed, &c->lock);
  wait_for_graphs(comm);
  leave(comm);
  pthread_mutex_unlock(&c->lock);
  if (object_retire(comm, KIND_COMMUNICATOR)) object_put(comm);
}

struct job *job_new(enum job_kind kind, ncclComm_t comm) {
  struct job *job = calloc(1, sizeof *job);
  job->kind = kind;
  job->comm = comm;
  return job;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ENTER_COLLECTED(ncclCommFinalize);
  if (!handle) return ncclSuccess;
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "CommFinalize", &comm);
  if (result != ncclSuccess) return group_refuse(result);
  pthread_mutex_lock(&comm->clique->lock);
  result = readiness(comm, "CommFinalize");
  if (result == ncclSuccess && (comm->finalized || comm->revoked)) {
    warn("CommFinalize : the communicator has been finalized or revoked");
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) comm->finalized = true;
  pthread_mutex_unlock(&comm->clique->lock);
  if (result == ncclSuccess) return group_submit(job_new(JOB_FINALIZE, comm));
  object_put(comm);
  return group_refuse(result);
}

/* Pitfall 3: the real library leaves its group open if it refuses to destroy. */
static ncclResult_t destroy_refuse(ncclResult_t result) {
  group_refuse(result);
  if (pitfall_on(3)) group_leak_depth();
  return result;
}

static ncclResult_t destroy(ncclComm_t handle) {
  if (!handle) return ncclSuccess;
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "CommDestroy", &comm);
  if (result != ncclSuccess) return destroy_refuse(result);
  check_no_thread_inside(comm, "ncclCommDestroy");
  pthread_mutex_lock(&comm->clique->lock);
  result = readiness(comm, "CommDestroy");
  if (result == ncclSuccess && comm->destroying) {
    warn("CommDestroy : the communicator is already being destroyed");
    result = ncclInvalidArgument;
  }
  if (result == ncclSuccess) comm->destroying = true;
  pthread_mutex_unlock(&comm->clique->lock);
  if (result == ncclSuccess) return group_submit(job_new(JOB_DESTROY, comm));
  object_put(comm);
  return destroy_refuse(result);
}

/* A forced CUDA error is returned after the communicator was freed, as the real library may do when it restores the
 * thread's current device. */
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  int forced;
  bool fails = nccl4j_standin_enter(&site_ncclCommDestroy, &forced);
  if (fails && forced != ncclUnhandledCudaError) return group_refuse(forced_failure("ncclCommDestroy", forced));
  ncclResult_t result = destroy(handle);
  return fails && result == ncclSuccess ? forced_failure("ncclCommDestroy", forced) : result;
}

/* The caller holds a reference. */
void comm_abort(ncclComm_t comm) {
  bool first = object_retire(comm, KIND_COMMUNICATOR);
  struct clique *c = comm->clique;
  pthread_mutex_lock(&c->lock);
  comm->aborted = true;
  c->leaving++;
  clique_wake(c);
  pthread_cond_broadcast(&comm->changed); /* a rank that has not joined is not a member */
  leave(comm);
  wait_for_graphs(comm);
  pthread_mutex_unlock(&c->lock);
  if (pitfall_on(15)) nccl4j_standin_wait_for_devices();
  if (first) object_put(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ENTER(ncclCommAbort);
  if (!handle) return ncclSuccess;
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "CommAbort", &comm);
  if (result != ncclSuccess) return result;
  check_no_thread_inside(comm, "ncclCommAbort");
  comm_abort(comm);
  object_put(comm);
  return ncclSuccess;
}

/* ---- jobs ---- */

ncclResult_t job_begin(struct job *job) {
  switch (job->kind) {
    case JOB_INIT: return init_begin(job->comm);
    case JOB_SPLIT: return split_begin(job);
    case JOB_REVOKE: return revoke_begin(job->comm);
    case JOB_SUSPEND:
    case JOB_RESUME: return barrier_begin(job->comm);
    case JOB_WINDOW: return window_begin(job);
    case JOB_DESTROY: return destroy_begin(job->comm);
    default: return ncclSuccess;
  }
}

ncclResult_t job_finish(struct job *job) {
  switch (job->kind) {
    case JOB_INIT: return init_finish(job->comm);
    case JOB_SPLIT: return split_finish(job);
    case JOB_REVOKE: return revoke_finish(job->comm);
    case JOB_SUSPEND: return suspend_finish(job->comm);
    case JOB_RESUME: return resume_finish(job->comm);
    case JOB_WINDOW: return window_finish(job);
    case JOB_FINALIZE: return finalize_finish(job->comm);
    case JOB_DESTROY: destroy_finish(job->comm); return ncclSuccess;
    default: return ncclSuccess;
  }
}

/* ---- queries ---- */

static ncclResult_t query(ncclComm_t handle, const char *function, int *out, const char *name, ncclComm_t *comm) {
  ncclResult_t result = comm_get(handle, function, comm);
  if (result != ncclSuccess) return result;
  result = argument_present(out, function, name);
  pthread_mutex_lock(&(*comm)->clique->lock);
  if (result == ncclSuccess) result = readiness(*comm, function);
  pthread_mutex_unlock(&(*comm)->clique->lock);
  if (result != ncclSuccess) object_put(*comm);
  return result;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int *count) {
  ENTER(ncclCommCount);
  ncclComm_t comm;
  ncclResult_t result = query(handle, "CommCount", count, "count", &comm);
  if (result != ncclSuccess) return result;
  *count = comm->clique->ranks;
  object_put(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int *rank) {
  ENTER(ncclCommUserRank);
  ncclComm_t comm;
  ncclResult_t result = query(handle, "CommUserRank", rank, "rank", &comm);
  if (result != ncclSuccess) return result;
  *rank = comm->rank;
  object_put(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int *device) {
  ENTER(ncclCommCuDevice);
  ncclComm_t comm;
  ncclResult_t result = query(handle, "CommCuDevice", device, "device", &comm);
  if (result != ncclSuccess) return result;
  *device = comm->device;
  object_put(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *asyncError) {
  ENTER(ncclCommGetAsyncError);
  ncclComm_t comm;
  ncclResult_t result = comm_get(handle, "ncclGetAsyncError", &comm);
  if (result != ncclSuccess) return result;
  check_state_query(comm);
  result = argument_present(asyncError, "ncclGetAsyncError", "asyncError");
  if (result == ncclSuccess) {
    pthread_mutex_lock(&comm->clique->lock);
    *asyncError = comm->failure != ncclSuccess ? comm->failure : comm->in_progress ? ncclInProgress : ncclSuccess;
    pthread_mutex_unlock(&comm->clique->lock);
  }
  object_put(comm);
  return result;
}

/* Of one node without NVLink multicast and without a network that kernels could use. */
ncclResult_t ncclCommQueryProperties(ncclComm_t handle, ncclCommProperties_t *props) {
  ENTER(ncclCommQueryProperties);
  ncclComm_t comm;
  ncclResult_t result = query(handle, "ncclCommQueryProperties", (int *)props, "props", &comm);
  if (result != ncclSuccess) return result;
  if (props->magic != NCCL_API_MAGIC) {
    warn("ncclCommProperties_t must be initialized via NCCL_COMM_PROPERTIES_INITIALIZER");
    result = ncclInvalidUsage;
  } else {
    props->rank = comm->rank;
    props->nRanks = comm->clique->ranks;
    props->cudaDev = props->nvmlDev = comm->device;
    props->deviceApiSupport = windows_supported();
    props->multimemSupport = false;
    props->ginType = props->railedGinType = NCCL_GIN_TYPE_NONE;
    props->hostRmaSupport = true;
    props->nLsaTeams = 1;
  }
  object_put(comm);
  return result;
}
