/*
 * Faults on demand, call counts and live objects.
 *
 * API functions register themselves before main (STANDIN_SITE), so that a misspelt name in a test is an error and not a
 * fault that never occurs.
 */
#include "cudart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fault {
  char *function;
  int result;
  int remaining; /* 0: every call */
  struct fault *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl4j_standin_site *sites;
static struct fault *faults;
static atomic_int faults_armed;
static bool environment_read;
static atomic_bool nccl_registered;

#define MAX_HOOKS 4
static void (*reset_hooks[MAX_HOOKS])(void);

const char *nccl4j_standin_name(void) { return "nccl4j stand-in for libnccl and libcudart (host memory, no GPU)"; }

void nccl4j_standin_register(struct nccl4j_standin_site *site) {
  pthread_mutex_lock(&lock);
  site->next = sites;
  sites = site;
  pthread_mutex_unlock(&lock);
  if (strncmp(site->name, "nccl", 4) == 0) atomic_store(&nccl_registered, true);
}

bool standin_nccl(void) { return atomic_load(&nccl_registered); }

static struct nccl4j_standin_site *site_named(const char *function) {
  for (struct nccl4j_standin_site *s = sites; s; s = s->next)
    if (strcmp(s->name, function) == 0) return s;
  return NULL;
}

static void arm(const char *function, int result, int nth) {
  struct fault *f = malloc(sizeof *f);
  *f = (struct fault){strdup(function), result, nth, faults};
  faults = f;
  atomic_fetch_add(&faults_armed, 1);
}

/* NCCL4J_STANDIN_FAIL=function=result@nth,...  Names are not checked: libnccl may not be loaded yet. */
static void read_environment(void) {
  environment_read = true;
  const char *text = getenv("NCCL4J_STANDIN_FAIL");
  if (!text) return;
  char *copy = strdup(text), *rest = copy;
  for (char *one; (one = strsep(&rest, ","));) {
    char function[64];
    int result, nth = 1, end = 0;
    if (sscanf(one, "%63[^=]=%d%n@%d%n", function, &result, &end, &nth, &end) < 2 || one[end] || nth < 0)
      nccl4j_standin_refuse_variable("NCCL4J_STANDIN_FAIL", "of the form function=result@nth,...");
    arm(function, result, nth);
  }
  free(copy);
}

__attribute__((constructor)) static void expect_environment(void) {
  if (getenv("NCCL4J_STANDIN_FAIL")) atomic_fetch_add(&faults_armed, 1); /* makes the first call read the environment */
}

static bool should_fail(const char *function, int *result) {
  bool hit = false;
  pthread_mutex_lock(&lock);
  if (!environment_read) {
    read_environment();
    if (getenv("NCCL4J_STANDIN_FAIL")) atomic_fetch_sub(&faults_armed, 1);
  }
  for (struct fault **at = &faults; *at;) {
    struct fault *f = *at;
    bool spent = false;
    if (strcmp(f->function, function) == 0) {
      if (f->remaining == 0 || f->remaining == 1) {
        hit = true;
        *result = f->result;
      }
      spent = f->remaining == 1;
      if (f->remaining > 1) f->remaining--;
    }
    if (spent) {
      *at = f->next;
      free(f->function);
      free(f);
      atomic_fetch_sub(&faults_armed, 1);
    } else {
      at = &f->next;
    }
  }
  pthread_mutex_unlock(&lock);
  return hit;
}

/* NCCL4J_STANDIN_RECORD=file: appends the name of each function at its first call. */
static void record(struct nccl4j_standin_site *site) {
  const char *path = getenv("NCCL4J_STANDIN_RECORD");
  if (!path || atomic_exchange(&site->recorded, true)) return;
  FILE *file = fopen(path, "ae");
  if (!file || fprintf(file, "%s\n", site->name) < 0 || fclose(file) != 0) {
    fprintf(stderr, "nccl4j stand-in: NCCL4J_STANDIN_RECORD: cannot append to '%s'\n", path);
    abort();
  }
}

bool nccl4j_standin_enter(struct nccl4j_standin_site *site, int *result) {
  if (atomic_fetch_add_explicit(&site->calls, 1, memory_order_relaxed) == 0) record(site);
  if (atomic_load_explicit(&faults_armed, memory_order_relaxed) == 0) return false;
  return should_fail(site->name, result);
}

int nccl4j_standin_fail(const char *function, int result, int nth) {
  if (!function || nth < 0) return -1;
  pthread_mutex_lock(&lock);
  bool known = site_named(function) != NULL;
  if (known) arm(function, result, nth);
  pthread_mutex_unlock(&lock);
  return known ? 0 : -1;
}

int64_t nccl4j_standin_calls(const char *function) {
  if (!function) return -1;
  pthread_mutex_lock(&lock);
  struct nccl4j_standin_site *site = site_named(function);
  pthread_mutex_unlock(&lock);
  return site ? atomic_load(&site->calls) : -1;
}

void nccl4j_standin_on_reset(void (*hook)(void)) {
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < MAX_HOOKS && reset_hooks[i]) i++;
  if (i == MAX_HOOKS) {
    fprintf(stderr, "nccl4j stand-in: more than %d functions for a reset\n", MAX_HOOKS);
    abort();
  }
  reset_hooks[i] = hook;
  pthread_mutex_unlock(&lock);
}

void nccl4j_standin_reset(void) {
  pthread_mutex_lock(&lock);
  while (faults) {
    struct fault *f = faults;
    faults = f->next;
    free(f->function);
    free(f);
    atomic_fetch_sub(&faults_armed, 1);
  }
  for (struct nccl4j_standin_site *s = sites; s; s = s->next) atomic_store(&s->calls, 0);
  pthread_mutex_unlock(&lock);
  devices_reset();
  streams_reset();
  nccl4j_standin_not_ready(1);
  for (int i = 0; i < MAX_HOOKS; i++)
    if (reset_hooks[i]) reset_hooks[i]();
}

/* ---- live objects ---- */

/* No name: counted as another kind. */
static const char *const kind_names[KIND_COUNT] = {
    [KIND_MEMORY] = "memory",
    [KIND_PINNED] = "pinned",
    [KIND_STREAM] = "stream",
    [KIND_EVENT] = "event",
    [KIND_COMMUNICATOR] = "communicator",
    [KIND_REDOP] = "redop",
    [KIND_GRAPH] = "graph",
    [KIND_REGISTRATION] = "registration",
    [KIND_WINDOW] = "window",
    [KIND_THREAD] = "thread",
    [KIND_POOL] = "pool",
    [KIND_PHYSICAL] = "physical",
    [KIND_RESERVATION] = "reservation",
    [KIND_MAPPING] = "mapping",
    [KIND_USER_OBJECT] = "user object",
    [KIND_CONNECTING] = "connecting",
    [KIND_TIMING_EVENT] = "timing event",
};
static _Atomic int64_t live[KIND_COUNT];

void nccl4j_standin_count(enum nccl4j_standin_kind kind, int delta) {
  atomic_fetch_add(&live[kind == KIND_GRAPH_EXEC ? KIND_GRAPH : kind], delta);
}

int64_t nccl4j_standin_live(const char *kind) {
  for (size_t k = 0; kind && k < KIND_COUNT; k++)
    if (kind_names[k] && strcmp(kind, kind_names[k]) == 0) return atomic_load(&live[k]);
  return -1;
}

/* Live objects by address, in a chained hash table. */
#define BUCKETS 1024
struct entry {
  void *object;
  struct entry *next;
};
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *table[BUCKETS];

static struct entry **bucket(const void *object) {
  uintptr_t bits = (uintptr_t)object;
  return &table[((bits >> 4) ^ (bits >> 14)) % BUCKETS];
}

void nccl4j_standin_object_add(void *object, enum nccl4j_standin_kind kind, void (*destroy)(void *)) {
  struct nccl4j_standin_object *o = object;
  atomic_init(&o->references, 1);
  o->kind = kind;
  o->destroy = destroy;
  struct entry *e = malloc(sizeof *e);
  pthread_mutex_lock(&table_lock);
  struct entry **at = bucket(object);
  *e = (struct entry){object, *at};
  *at = e;
  pthread_mutex_unlock(&table_lock);
  nccl4j_standin_count(kind, 1);
}

static struct entry **entry_of(const void *handle, enum nccl4j_standin_kind kind) {
  for (struct entry **at = bucket(handle); *at; at = &(*at)->next)
    if ((*at)->object == handle) return ((struct nccl4j_standin_object *)(*at)->object)->kind == kind ? at : NULL;
  return NULL;
}

void *nccl4j_standin_object_get(const void *handle, enum nccl4j_standin_kind kind) {
  pthread_mutex_lock(&table_lock);
  struct entry **at = entry_of(handle, kind);
  void *object = at ? (*at)->object : NULL;
  if (object) object_hold(object);
  pthread_mutex_unlock(&table_lock);
  return object;
}

void nccl4j_standin_object_hold(void *object) {
  atomic_fetch_add(&((struct nccl4j_standin_object *)object)->references, 1);
}

void nccl4j_standin_object_put(void *object) {
  struct nccl4j_standin_object *o = object;
  if (atomic_fetch_sub(&o->references, 1) == 1) o->destroy(object);
}

bool nccl4j_standin_object_retire(void *handle, enum nccl4j_standin_kind kind) {
  pthread_mutex_lock(&table_lock);
  struct entry **at = entry_of(handle, kind);
  struct entry *gone = at ? *at : NULL;
  if (gone) *at = gone->next;
  pthread_mutex_unlock(&table_lock);
  if (!gone) return false;
  free(gone);
  nccl4j_standin_count(kind, -1);
  return true;
}

/* ---- threads ---- */

struct thread_start {
  void *(*run)(void *);
  void *argument;
};

static void *counted(void *argument) {
  struct thread_start start = *(struct thread_start *)argument;
  free(argument);
  start.run(start.argument);
  nccl4j_standin_count(KIND_THREAD, -1);
  return NULL;
}

bool nccl4j_standin_thread(void *(*run)(void *), void *argument) {
  struct thread_start *start = malloc(sizeof *start);
  *start = (struct thread_start){run, argument};
  nccl4j_standin_count(KIND_THREAD, 1);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 2 << 20); /* enough for a Java host function */
  pthread_t thread;
  bool made = pthread_create(&thread, &attributes, counted, start) == 0;
  pthread_attr_destroy(&attributes);
  if (!made) {
    nccl4j_standin_count(KIND_THREAD, -1);
    free(start);
  }
  return made;
}
