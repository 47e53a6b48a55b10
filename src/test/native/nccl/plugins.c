/*
 * Plugins: shared objects that variables of the environment name by their paths, called as NCCL's public interfaces say.
 *
 * The environment plugin is asked from the first call on. A profiler (version 6) and a tuner (version 5) are loaded with
 * the first communicator and closed after the last one. Costs of algorithms are made up, and what is chosen has no effect
 * on the result. A kernel has the host's clock for the GPU's timer.
 */
#include "plugins.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

static void ignore_log(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
}

/* ---- loading ---- */

struct plugin {
  const char *variable, *symbol;
  int release; /* the first that has the interface */
  void *object, *table;
  int users;
};

static pthread_mutex_t plugins_lock = PTHREAD_MUTEX_INITIALIZER;

static void *plugin_open(struct plugin *p, const char *path) {
  if (STANDIN_RELEASE < p->release || !path || !strchr(path, '/')) return NULL;
  p->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  p->table = p->object ? dlsym(p->object, p->symbol) : NULL;
  if (p->object && !p->table) dlclose(p->object);
  return p->table;
}

/* Returns the table for one more communicator, or NULL. */
static void *plugin_use(struct plugin *p) {
  const char *path = variable(p->variable);
  pthread_mutex_lock(&plugins_lock);
  void *table = p->users > 0 ? p->table : plugin_open(p, path);
  if (table) p->users++;
  pthread_mutex_unlock(&plugins_lock);
  return table;
}

static void plugin_leave(struct plugin *p) {
  pthread_mutex_lock(&plugins_lock);
  if (--p->users == 0) dlclose(p->object);
  pthread_mutex_unlock(&plugins_lock);
}

/* ---- the environment ---- */

struct environment_v2 {
  const char *name;
  ncclResult_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, logger);
  ncclResult_t (*finalize)(void);
  const char *(*get)(const char *name);
};

static struct environment_v2 *environment;
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static void environment_finalize(void) {
  if (environment->finalize) environment->finalize();
}

static void environment_load(void) {
  struct plugin p = {.symbol = "ncclEnvPlugin_v2", .release = NCCL_VERSION(2, 30, 7)};
  environment = plugin_open(&p, getenv("NCCL_ENV_PLUGIN"));
  if (!environment) return;
  environment->init(STANDIN_RELEASE / 10000, STANDIN_RELEASE / 100 % 100, STANDIN_RELEASE % 100, "", ignore_log);
  atexit(environment_finalize);
}

void environment_open(void) { pthread_once(&environment_once, environment_load); }

const char *variable(const char *name) {
  environment_open();
  return environment ? environment->get(name) : getenv(name);
}

/* ---- the profiler ---- */

enum event { EVENT_COLLECTIVE = 1 << 1, EVENT_MESSAGE = 1 << 2, EVENT_KERNEL = 1 << 6, EVENT_COLLECTIVE_CALL = 1 << 9,
             EVENT_MESSAGE_CALL = 1 << 10 };
#define STATE_KERNEL_STOP 22

struct descriptor {
  uint64_t type;
  void *parent;
  int rank;
  union {
    struct {
      const char *function;
      size_t count;
      const char *type;
      int root;
      void *stream;
      bool captured;
    } collective_call;
    struct {
      const char *function;
      size_t count;
      const char *type;
      void *stream;
      bool captured;
    } message_call;
    struct {
      uint64_t sequence;
      const char *function;
      const void *send;
      void *receive;
      size_t count;
      int root;
      const char *type;
      uint8_t channels, warps;
      const char *algorithm, *protocol;
      void *group;
    } collective;
    struct {
      const char *function;
      void *buffer;
      const char *type;
      size_t count;
      int peer;
      uint8_t channels;
      void *group;
    } message;
    struct {
      uint8_t channel;
      uint64_t timer;
    } kernel;
    char whole[88];
  };
};

struct profiler_v6 {
  const char *name;
  ncclResult_t (*init)(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                       logger);
  ncclResult_t (*start)(void *context, void **handle, struct descriptor *);
  ncclResult_t (*stop)(void *handle);
  ncclResult_t (*record)(void *handle, int state, uint64_t *timer);
  ncclResult_t (*finalize)(void *context);
};

static struct plugin profiler = {.variable = "NCCL_PROFILER_PLUGIN", .symbol = "ncclProfiler_v6",
                                 .release = NCCL_VERSION(2, 29, 2)};
static int mask; /* as in NCCL, one for all communicators, which the profiler may change at any time */

static const char *const type_names[] = {"ncclInt8",    "Unknown",     "ncclInt32",   "ncclUint32",
                                         "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                         "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

static void *start(ncclComm_t comm, struct descriptor d) {
  void *handle = NULL;
  d.rank = comm->rank;
  comm->profiler->start(comm->profiler_context, &handle, &d);
  return handle;
}

static bool wanted(ncclComm_t comm, int events) { return comm->profiler && (__atomic_load_n(&mask, __ATOMIC_RELAXED) & events); }

void profile_stop(ncclComm_t comm, void *handle) {
  if (handle) comm->profiler->stop(handle);
}

static bool message(const struct request *r) { return r->function == SEND || r->function == RECV; }

void *profile_call(ncclComm_t comm, const struct request *r, cudaStream_t stream, bool captured) {
  if (r->function > RECV || !wanted(comm, message(r) ? EVENT_MESSAGE_CALL : EVENT_COLLECTIVE_CALL)) return NULL;
  const char *function = function_name(r->function), *type = type_names[r->type];
  if (message(r))
    return start(comm, (struct descriptor){.type = EVENT_MESSAGE_CALL,
                                           .message_call = {function, r->count, type, stream, captured}});
  return start(comm, (struct descriptor){.type = EVENT_COLLECTIVE_CALL,
                                         .collective_call = {function, r->count, type, r->peer, stream, captured}});
}

static uint64_t nanoseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void profile_kernel(ncclComm_t comm, const struct request *r, void *handles[MAX_CHANNELS]) {
  for (uint8_t i = 0; i < MAX_CHANNELS; i++)
    handles[i] = r->launch && i < r->channels && wanted(comm, EVENT_KERNEL)
                     ? start(comm, (struct descriptor){.type = EVENT_KERNEL, .parent = r->launch,
                                                       .kernel = {i, nanoseconds()}})
                     : NULL;
}

void profile_kernel_stop(ncclComm_t comm, void *handles[MAX_CHANNELS]) {
  for (int i = 0; i < MAX_CHANNELS; i++) {
    if (!handles[i]) continue;
    uint64_t timer = nanoseconds();
    comm->profiler->record(handles[i], STATE_KERNEL_STOP, &timer);
    comm->profiler->stop(handles[i]);
  }
}

/* ---- the tuner ---- */

#define ALGORITHMS 7
#define PROTOCOLS 3
enum { TREE, RING };
static const char *const algorithm_names[ALGORITHMS] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN",
                                                        "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocol_names[PROTOCOLS] = {"LL", "LL128", "SIMPLE"};

struct tuner_v5 {
  const char *name;
  ncclResult_t (*init)(void **context, uint64_t communicator, size_t ranks, size_t nodes, logger, void *domains,
                       void *constants);
  ncclResult_t (*choose)(void *context, int function, size_t bytes, int grouped, float **costs, int algorithms,
                         int protocols, int registered, int *channels);
  ncclResult_t (*finalize)(void *context);
};

static struct plugin tuner = {.variable = "NCCL_TUNER_PLUGIN", .symbol = "ncclTunerPlugin_v5",
                              .release = NCCL_VERSION(2, 28, 3)};

/* NCCL's number of a function, which has an algorithm; -1 for one that is made of sends and receives. */
static int tuned_number(enum function f) {
  switch (f) {
    case BROADCAST: return 0;
    case REDUCE: return 1;
    case ALL_GATHER: return 2;
    case REDUCE_SCATTER: return 3;
    case ALL_REDUCE: return 4;
    default: return -1;
  }
}

struct choice {
  int algorithm, protocol, channels;
};

/* Trees are for small all-reduces, and LL for small data. */
static void estimate(enum function f, size_t bytes, float costs[ALGORITHMS][PROTOCOLS]) {
  static const float latency[2] = {6, 12}, bandwidth[2] = {1e4f, 2e4f}, share[PROTOCOLS] = {0.25f, 0.9f, 1};
  for (int a = 0; a < ALGORITHMS; a++)
    for (int p = 0; p < PROTOCOLS; p++)
      costs[a][p] = a > RING || (a == TREE && f != ALL_REDUCE)
                        ? -1
                        : latency[a] * (float)(p + 1) + (float)bytes / (bandwidth[a] * share[p]);
}

static struct choice choose(ncclComm_t comm, const struct request *r, int grouped) {
  size_t bytes = r->count * type_size(r->type);
  if (r->function == ALL_GATHER || r->function == REDUCE_SCATTER) bytes *= (size_t)comm->clique->ranks;
  float costs[ALGORITHMS][PROTOCOLS];
  struct choice chosen = {RING, 0, 0};
  estimate(r->function, bytes, costs);
  if (comm->tuner)
    comm->tuner->choose(comm->tuner_context, tuned_number(r->function), bytes, grouped, (float **)costs, ALGORITHMS,
                        PROTOCOLS, 0, &chosen.channels);
  for (int a = 0; a < ALGORITHMS; a++)
    for (int p = 0; p < PROTOCOLS; p++)
      if (costs[a][p] >= 0 && costs[a][p] < costs[chosen.algorithm][chosen.protocol])
        chosen.algorithm = a, chosen.protocol = p;
  if (chosen.channels == 0) chosen.channels = 2;
  return chosen;
}

/* Operations that only copy are counted in bytes. */
void *profile_launch(ncclComm_t comm, struct request *r, int grouped) {
  bool copies = r->function == BROADCAST || r->function == ALL_GATHER;
  const char *function = function_name(r->function), *type = copies ? "ncclInt8" : type_names[r->type];
  r->channels = 1;
  if (message(r) && wanted(comm, EVENT_MESSAGE))
    return start(comm,
                 (struct descriptor){.type = EVENT_MESSAGE, .parent = r->call,
                                     .message = {function, r->function == SEND ? (void *)r->send : r->receive, type,
                                                 r->count, r->peer, 1, NULL}});
  if (tuned_number(r->function) < 0) return NULL;
  struct choice chosen = choose(comm, r, grouped);
  r->channels = (uint8_t)chosen.channels;
  if (!wanted(comm, EVENT_COLLECTIVE)) return NULL;
  return start(comm, (struct descriptor){.type = EVENT_COLLECTIVE, .parent = r->call,
                                         .collective = {comm->launched[r->function]++, function, r->send, r->receive,
                                                        copies ? r->count * type_size(r->type) : r->count, r->peer, type,
                                                        (uint8_t)chosen.channels, 16, algorithm_names[chosen.algorithm],
                                                        protocol_names[chosen.protocol], NULL}});
}

/* ---- communicators ---- */

void plugins_open(ncclComm_t comm) {
  uint64_t number = (uint64_t)(uintptr_t)comm->clique;
  comm->profiler = plugin_use(&profiler);
  if (comm->profiler)
    comm->profiler->init(&comm->profiler_context, number, &mask, comm->config.commName, 1, comm->clique->ranks,
                         comm->rank, ignore_log);
  char domains[3 * sizeof(int)] = {0}, constants[2048] = {0};
  comm->tuner = plugin_use(&tuner);
  if (comm->tuner)
    comm->tuner->init(&comm->tuner_context, number, (size_t)comm->clique->ranks, 1, ignore_log, domains, constants);
}

void plugins_close(ncclComm_t comm) {
  if (comm->tuner) {
    comm->tuner->finalize(comm->tuner_context);
    plugin_leave(&tuner);
  }
  if (comm->profiler) {
    comm->profiler->finalize(comm->profiler_context);
    plugin_leave(&profiler);
  }
}
