/* The switches of the stand-in's NCCL: no-op mode, pitfalls, operations that hang, ranks that fail or never arrive. */
#include "clique.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PITFALLS 32

atomic_bool noop;
static atomic_bool pitfalls[PITFALLS], windows = true, connects;
static atomic_int hold, absent = -1, failing = -1, failing_result, init_stack, inside_milliseconds;
static _Atomic int64_t kernel_time;

static pthread_mutex_t flip_lock = PTHREAD_MUTEX_INITIALIZER;
static int flip_rank = -1, flip_bit;
static int64_t flip_byte;

static void pitfalls_from_environment(void) {
  const char *text = getenv("NCCL4J_STANDIN_PITFALLS");
  for (char *end; text; text = *end ? end + 1 : NULL) {
    long number = strtol(text, &end, 10);
    if (end == text || (*end && *end != ',') || number != (int)number ||
        nccl4j_standin_pitfall((int)number, 1) != 0)
      nccl4j_standin_refuse_variable("NCCL4J_STANDIN_PITFALLS", "numbers of pitfalls, such as 3,8");
  }
}

static void failing_from_environment(void) {
  int rank = -1, result = ncclRemoteError, end = 0;
  const char *text = getenv("NCCL4J_STANDIN_RANK_FAILS");
  if (text && (sscanf(text, "%d%n:%d%n", &rank, &end, &result, &end) < 1 || text[end] || rank < 0 || result < 0 ||
               result >= ncclNumResults))
    nccl4j_standin_refuse_variable("NCCL4J_STANDIN_RANK_FAILS", "rank or rank:result");
  atomic_store(&failing, rank);
  atomic_store(&failing_result, result);
}

static void switches_reset(void) {
  atomic_store(&noop, nccl4j_standin_number("NCCL4J_STANDIN_NOOP", 0, 0, 1) != 0);
  atomic_store(&windows, true);
  atomic_store(&connects, nccl4j_standin_number("NCCL4J_STANDIN_CONNECT", 1, 0, 1) != 0);
  atomic_store(&init_stack, (int)nccl4j_standin_number("NCCL4J_STANDIN_INIT_STACK", 0, 0, INT_MAX));
  for (int i = 0; i < PITFALLS; i++) atomic_store(&pitfalls[i], false);
  pitfalls_from_environment();
  atomic_store(&hold, (int)nccl4j_standin_number("NCCL4J_STANDIN_HOLD_MS", 0, -1, INT_MAX));
  atomic_store(&kernel_time, nccl4j_standin_number("NCCL4J_STANDIN_KERNEL_NS", 0, 0, INT64_MAX));
  atomic_store(&absent, (int)nccl4j_standin_number("NCCL4J_STANDIN_ABSENT_RANK", -1, -1, INT_MAX));
  failing_from_environment();
  nccl4j_standin_flip(-1, 0, 0);
}

__attribute__((constructor)) static void switches_first(void) {
  switches_reset();
  nccl4j_standin_on_reset(switches_reset);
}

void nccl4j_standin_set_noop(int on) { atomic_store(&noop, on != 0); }

/* Long enough for a second thread to call meanwhile, short enough for a test. */
#define INSIDE_MILLISECONDS 50

int nccl4j_standin_pitfall(int number, int on) {
  if (number != 3 && number != 4 && number != 8 && number != 13 && number != 14 && number != 15 &&
      number != 16)
    return -1;
  if (number == 13) atomic_store(&inside_milliseconds, on == 1 ? INSIDE_MILLISECONDS : on);
  atomic_store(&pitfalls[number], on != 0);
  return 0;
}

void nccl4j_standin_hold(int milliseconds) { atomic_store(&hold, milliseconds); }
void nccl4j_standin_windows(int supported) { atomic_store(&windows, supported != 0); }
bool windows_supported(void) { return atomic_load(&windows); }
void nccl4j_standin_kernel_time(int64_t nanoseconds) { atomic_store(&kernel_time, nanoseconds); }
void nccl4j_standin_absent(int rank) { atomic_store(&absent, rank); }

void nccl4j_standin_flip(int rank, int64_t byte, int bit) {
  pthread_mutex_lock(&flip_lock);
  flip_rank = rank;
  flip_byte = byte;
  flip_bit = bit;
  pthread_mutex_unlock(&flip_lock);
}

void flip_output(int rank, void *output, size_t bytes) {
  pthread_mutex_lock(&flip_lock);
  if (rank == flip_rank && flip_byte >= 0 && (size_t)flip_byte < bytes) {
    ((unsigned char *)output)[flip_byte] ^= (unsigned char)(1 << flip_bit);
    flip_rank = -1;
  }
  pthread_mutex_unlock(&flip_lock);
}

void nccl4j_standin_connect(int on) { atomic_store(&connects, on != 0); }
bool connects_in_calls(void) { return atomic_load(&connects); }

void nccl4j_standin_init_stack(int bytes) { atomic_store(&init_stack, bytes); }

/* Reserve for signal handlers and Java's guard pages. */
#define STACK_RESERVE ((size_t)256 << 10)

static size_t stack_left(void) {
  pthread_attr_t attributes;
  void *lowest;
  size_t bytes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  return (size_t)((char *)&bytes - (char *)lowest);
}

/* In steps, since tools such as valgrind take a large one for a change to another stack. */
static void use_stack(size_t bytes) {
  volatile char frame[4096];
  frame[0] = 1;
  if (bytes > sizeof frame) use_stack(bytes - sizeof frame);
  frame[1] = 1; /* used until here, so that the frames lie below each other */
}

ncclResult_t init_stack_use(void) {
  size_t needed = (size_t)atomic_load(&init_stack), left = needed ? stack_left() : 0;
  if (needed == 0) return ncclSuccess;
  if (left < needed + STACK_RESERVE) {
    warn("an initialisation needs %zu bytes of stack, but its thread has only %zu; the real library would crash",
         needed, left);
    return ncclSystemError;
  }
  use_stack(needed);
  return ncclSuccess;
}

void device_changes(void) {
  if (pitfall_on(14)) nccl4j_standin_move_to_next_device();
}

static bool broken(ncclComm_t comm) {
  pthread_mutex_lock(&comm->clique->lock);
  bool failed = comm->failure != ncclSuccess;
  pthread_mutex_unlock(&comm->clique->lock);
  return failed;
}

bool exclusive_begin(ncclComm_t comm) {
  if (!pitfall_on(13)) return true;
  if (!atomic_exchange(&comm->inside, true)) {
    for (int i = atomic_load(&inside_milliseconds); i > 0 && !broken(comm); i--) usleep(1000);
    return true;
  }
  pthread_mutex_lock(&comm->clique->lock);
  if (comm->failure == ncclSuccess) comm->failure = ncclInternalError;
  pthread_mutex_unlock(&comm->clique->lock);
  warn("two threads are inside one communicator");
  return false;
}

void check_state_query(ncclComm_t comm) {
  if (!pitfall_on(13) || !atomic_load(&comm->inside)) return;
  pthread_mutex_lock(&comm->clique->lock);
  if (!comm->config.blocking && comm->failure == ncclSuccess) comm->failure = ncclInternalError;
  pthread_mutex_unlock(&comm->clique->lock);
}

void exclusive_end(ncclComm_t comm) { atomic_store(&comm->inside, false); }

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;
static ncclConfig_t last_config;
static char last_net[64], last_name[64];

static const char *copy_text(char *buffer, size_t bytes, const char *text) {
  if (text) snprintf(buffer, bytes, "%s", text);
  return text ? buffer : NULL;
}

void config_note(const ncclConfig_t *config) {
  pthread_mutex_lock(&config_lock);
  last_config = *config;
  last_config.netName = copy_text(last_net, sizeof last_net, config->netName);
  last_config.commName = copy_text(last_name, sizeof last_name, config->commName);
  pthread_mutex_unlock(&config_lock);
}

void nccl4j_standin_last_config(ncclConfig_t *config) {
  pthread_mutex_lock(&config_lock);
  *config = last_config;
  pthread_mutex_unlock(&config_lock);
}

int nccl4j_standin_comm_name_intact(ncclComm_t handle) {
  ncclComm_t comm;
  if (comm_get(handle, "nccl4j_standin_comm_name_intact", &comm) != ncclSuccess) return -1;
  int intact = !comm->name_then || strcmp(comm->name_then, comm->config.commName) == 0;
  object_put(comm);
  return intact;
}

bool pitfall_on(int number) { return atomic_load(&pitfalls[number]); }
int hold_milliseconds(void) { return atomic_load(&hold); }
int64_t kernel_nanoseconds(void) { return atomic_load(&kernel_time); }
int absent_rank(void) { return atomic_load(&absent); }

bool failing_rank(int *rank, int *result) {
  *rank = atomic_load(&failing);
  *result = atomic_load(&failing_result);
  return *rank >= 0;
}

int nccl4j_standin_rank_fails(ncclComm_t handle, int rank, int asyncError) {
  ncclComm_t comm;
  if (comm_get(handle, "nccl4j_standin_rank_fails", &comm) != ncclSuccess) return -1;
  struct clique *clique = comm->clique;
  int answer = -1;
  pthread_mutex_lock(&clique->lock);
  ncclComm_t victim = rank >= 0 && rank < clique->ranks ? clique->members[rank] : NULL;
  if (victim) {
    victim->silent = true;
    if (asyncError != 0) victim->failure = (ncclResult_t)asyncError;
    operations_withdraw(victim);
    pthread_cond_broadcast(&victim->changed);
    answer = 0;
  }
  pthread_mutex_unlock(&clique->lock);
  object_put(comm);
  return answer;
}
