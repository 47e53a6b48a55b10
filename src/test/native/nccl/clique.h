/*
 * Declarations shared by the files of the stand-in's NCCL.
 *
 * A clique is the state shared by the ranks of one unique id, or of one colour of a split: a lock, the operations that
 * wait for peers, and the ranks. Ranks are threads of one process, so this is plain memory. Lock order: the CUDA
 * runtime's locks may be taken before a clique's, never after it, except those of objects and memory.
 */
#ifndef NCCL4J_STANDIN_CLIQUE_H
#define NCCL4J_STANDIN_CLIQUE_H

#include "../standin.h"
#include "release.h"
#include "types.h"

#include <pthread.h>

/* Each API function: counted, failing on demand, and exported under its profiling name too. */
#define NCCL_FUNCTION(function)                                                                    \
  STANDIN_SITE(function)                                                                           \
  extern __typeof__(function) p##function __attribute__((alias(#function)));

#define ENTER(function)                                                                            \
  do {                                                                                             \
    int forced;                                                                                    \
    if (nccl4j_standin_enter(&site_##function, &forced)) return forced_failure(#function, forced); \
  } while (0)
/* The same for calls that a group collects: a forced failure poisons the group as a real one does. */
#define ENTER_COLLECTED(function)                                                                  \
  do {                                                                                             \
    int forced;                                                                                    \
    if (nccl4j_standin_enter(&site_##function, &forced))                                           \
      return group_refuse(forced_failure(#function, forced));                                      \
  } while (0)

/* ---- errors ---- */
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
ncclResult_t forced_failure(const char *function, int result);
ncclResult_t cuda_failure(cudaError_t error);
/* An unhandled CUDA error if there is no device, or if a capture forbids unsafe calls. */
ncclResult_t require_cuda(void);
ncclResult_t argument_present(const void *argument, const char *function, const char *name);

/* ---- reduction operators ---- */
struct reduction {
  enum reduction_kind kind;
  bool scaled;  /* each rank's input is multiplied by the scalar first */
  bool average; /* built-in average: scaled for floats, divided at the end for integers */
  const void *device_scalar; /* read when the operation runs; NULL: `scalar` has it */
  char scalar[8];
};
struct redop;
ncclResult_t redop_resolve(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, const char *function,
                           struct reduction *reduction);
void redops_free(struct redop *list);

/* ---- communicators ---- */
struct registration;
struct window_registration;
struct operation;
struct slot;
struct split;
struct growth;
struct profiler_v6;
struct tuner_v5;

struct clique {
  _Atomic int references;
  pthread_mutex_t lock;
  ncclUniqueId *ids; /* that the ranks join with; NULL for a child */
  int id_count;
  int ranks, joined, leaving;
  bool complete;
  ncclResult_t failure; /* of the initialisation */
  struct slot *slots;
  struct operation *messages; /* sends and receives without a counterpart yet */
  struct operation *waits;    /* for signals */
  struct split *splits;
  struct growth *growths;
  uint64_t barrier_arrivals;
  struct window_registration *window_registrations; /* those that wait for ranks */
  struct clique *next; /* of those that ranks may still join */
  ncclComm_t *members; /* by rank; NULL before it joins and after it leaves */
  int collectives_waiting; /* ranks whose first collective waits for its peers */
  uint64_t hash; /* by which RAS names the communicator */
};

#define RAS_KINDS 5 /* of collectives, which RAS counts */

/* The state of the connection for collectives, or of the one to or from a peer. */
enum link { LINK_NONE, LINK_WAITING, LINK_CONNECTED };

struct ncclComm {
  struct nccl4j_standin_object object;
  struct clique *clique;
  int rank, device;
  unsigned ordinal;
  bool check_pointers;
  struct profiler_v6 *profiler; /* NULL: none */
  struct tuner_v5 *tuner;
  void *profiler_context, *tuner_context;
  _Atomic uint64_t launched[5]; /* collectives, by function */
  atomic_bool inside; /* pitfall 13 */
  ncclConfig_t config;
  char *net_name, *name_then; /* commName is not copied, as in the real library; this is a copy of its text */

  /* all below: under the clique's lock */
  pthread_cond_t changed;
  int in_progress; /* operations under way that keep a non-blocking communicator from being used */
  ncclResult_t failure;
  bool finalized, destroying, aborted, silent, revoked, suspended;
  bool cancelling; /* operations end without being carried out */
  int executions; /* of enqueued plans: begun, not ended */
  int running;    /* operations of this rank whose data is being moved */
  int persistent; /* captured plans that belong to a graph, an executable graph or a launch */
  int calls;      /* that connect on the caller's thread */
  enum link collective_link, *send_links, *receive_links; /* the latter by peer */
  uint64_t collectives, splits, grows, barriers;
  uint64_t *sent, *received;
  struct redop *redops;
  int redop_count;
  struct registration *registrations;
  struct ncclWindow_vidmem *windows;
  uint64_t registered_windows;
  uint64_t *signals; /* by sender: arrived, not yet consumed by a wait */

  /* for RAS */
  _Atomic uint64_t ras_counts[RAS_KINDS];
  ncclComm_t ras_next;
};

/* Registered with every rank of the clique; the number is the same on all of them. */
struct ncclWindow_vidmem {
  ncclComm_t comm;
  void *base;
  size_t bytes;
  int flags;
  uint64_t number;
  struct ncclWindow_vidmem *next;
};

struct clique *clique_new(int ranks);
void clique_put(struct clique *clique);
/* Wakes every rank of the clique. Needs its lock. */
void clique_wake(struct clique *clique);

ncclComm_t comm_new(struct clique *clique, int rank, int device, const ncclConfig_t *config);
/* Stores the communicator with a reference; a NULL or dead handle is an invalid argument. */
ncclResult_t comm_get(ncclComm_t handle, const char *function, ncclComm_t *comm);
/* The same; it must have nothing in progress, and be neither failed nor finalized. */
ncclResult_t comm_get_ready(ncclComm_t handle, const char *function, ncclComm_t *comm);
/* The same; it must be neither revoked nor suspended. */
ncclResult_t comm_get_usable(ncclComm_t handle, const char *function, ncclComm_t *comm);
/* The caller holds a reference. */
void comm_abort(ncclComm_t comm);
ncclResult_t config_take(ncclConfig_t *own, const ncclConfig_t *given, const ncclConfig_t *inherited);
void registrations_free(struct registration *list);
void windows_free(struct ncclWindow_vidmem *windows);
void window_registrations_free(struct window_registration *window_registrations);

void id_make(ncclUniqueId *id);
bool id_spent(const ncclUniqueId *id);
/* Creates one rank of a new clique that ranks join by ids. */
ncclResult_t init_on(ncclComm_t *out, int ranks, const ncclUniqueId *ids, int id_count, int rank,
                     const ncclConfig_t *given, int device);
void splits_free(struct split *splits);
void growths_free(struct growth *list);

/* Returns a variable of the environment: from the environment plugin, if there is one. */
const char *variable(const char *name);

/* ---- groups ---- */
enum job_kind {
  JOB_OPERATION, JOB_INIT, JOB_SPLIT, JOB_WINDOW, JOB_FINALIZE, JOB_DESTROY, JOB_REVOKE, JOB_SUSPEND, JOB_RESUME
};

enum function {
  ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, SEND, RECV,
  PUT_SIGNAL, SIGNAL, WAIT_SIGNAL
};

/* The arguments of one collective, point-to-point or one-sided operation. */
struct request {
  enum function function;
  const void *send;
  void *receive;
  size_t count;
  ncclDataType_t type;
  struct reduction reduction;
  int peer; /* root, or the other end */
  void *call, *launch; /* the profiler's handles */
  uint8_t channels;    /* as the profiler was told */
  ncclWindow_t window; /* of a put: this rank's handle, and the byte offset in the peer's memory */
  size_t offset;
  uint64_t *expected; /* of a wait: signals by sender; owned by the job, then by the plan */
};

struct job {
  enum job_kind kind;
  ncclComm_t comm; /* with a reference */
  struct job *next;
  bool launched;
  struct request request;
  struct nccl4j_standin_stream *stream; /* with a reference */
  int color, key; /* of a split, or a shrink */
  int *excluded, excluded_count;
  struct split *split;
  ncclComm_t *out;
  struct ncclWindow_vidmem *window; /* of a registration; owned by the communicator once `window_registration` is set */
  struct window_registration *window_registration;
  ncclWindow_t *window_out;
  ncclConfig_t config;
};

/* Adds the job to this thread's group, or runs it at once if no group is open. Takes the job. */
ncclResult_t group_submit(struct job *job);
/* Poisons the open group, if any; returns the result. */
ncclResult_t group_refuse(ncclResult_t result);
void group_start(void);
ncclResult_t group_end(void);
/* Pitfall 3: the effect of a failed initialisation on its thread. */
void group_leak_depth(void);

struct job *job_new(enum job_kind kind, ncclComm_t comm);
ncclResult_t job_begin(struct job *job);
ncclResult_t job_finish(struct job *job);
/* Enqueues the operations of job->comm among this job and those after it. */
ncclResult_t jobs_launch(struct job *job);

ncclResult_t split_begin(struct job *job);
ncclResult_t split_finish(struct job *job);
ncclResult_t revoke_begin(ncclComm_t comm);
ncclResult_t revoke_finish(ncclComm_t comm);
ncclResult_t barrier_begin(ncclComm_t comm);
ncclResult_t suspend_finish(ncclComm_t comm);
ncclResult_t resume_finish(ncclComm_t comm);

/* ---- windows; all but the jobs need the clique's lock ---- */
ncclResult_t window_begin(struct job *job);
ncclResult_t window_finish(struct job *job);
/* The window with a handle, with a number, around an address; NULL if this rank has none. */
struct ncclWindow_vidmem *window_of(ncclComm_t comm, ncclWindow_t handle);
struct ncclWindow_vidmem *window_numbered(ncclComm_t comm, uint64_t number);
struct ncclWindow_vidmem *window_around(ncclComm_t comm, const void *pointer);

/* ---- one-sided operations; need the clique's lock ---- */
/* Puts or signals. */
ncclResult_t onesided_run(ncclComm_t comm, const struct request *request);
/* Consumes the expected signals if all have arrived. */
bool signals_take(ncclComm_t comm, const struct request *request);

/* ---- operations ---- */
/* Launches a request whose check succeeded, or refuses it with the check's result. Takes the reference and the request.
 * */
ncclResult_t operation_submit(ncclComm_t comm, struct request request, cudaStream_t stream, ncclResult_t checked);
/* Ends this rank's operations, enqueued and running, without carrying them out. */
void operations_cancel(ncclComm_t comm);
/* Withdraws the operations that this rank has posted and no peer has begun. Needs the clique's lock. */
void operations_withdraw(ncclComm_t comm);
/* Connects for the first operations among these jobs; in_call: on the caller's thread. */
ncclResult_t jobs_connect(struct job *first, bool in_call);
/* Ends the process if a thread is still in a call that connects: the real library would use freed memory. */
void check_no_thread_inside(ncclComm_t comm, const char *function);
void slots_free(struct slot *slots);
const char *function_name(enum function function);

/* ---- RAS (see ras.c) ---- */
void ras_add(ncclComm_t comm);
void ras_remove(ncclComm_t comm);
void ras_count(ncclComm_t comm, enum function function);
uint64_t ras_id_hash(const ncclUniqueId *id);
/* The number of a split among the parent's splits and grows, from 1; for a shrink, number and color are 0. */
uint64_t ras_child_hash(uint64_t parent, int number, int color);

/* ---- switches (see faults.c) ---- */
bool pitfall_on(int number);
bool connects_in_calls(void);
/* Uses as much stack as an initialisation is set to need; a system error if the thread has less. */
ncclResult_t init_stack_use(void);
bool windows_supported(void);
void device_changes(void); /* pitfall 14 */
/* Pitfall 13: marks a thread as inside a communicator; false if another thread is. */
bool exclusive_begin(ncclComm_t comm);
void exclusive_end(ncclComm_t comm);
/* Pitfall 13: breaks a non-blocking communicator whose state is queried during a call. */
void check_state_query(ncclComm_t comm);
void config_note(const ncclConfig_t *config);
int hold_milliseconds(void);
int absent_rank(void);
/* The minimum time that a stream takes for collectives, sends and receives. */
int64_t kernel_nanoseconds(void);
/* Flips the bit that a test has chosen, if it is in this output. */
void flip_output(int rank, void *output, size_t bytes);
bool failing_rank(int *rank, int *result);
extern atomic_bool noop;

#endif
