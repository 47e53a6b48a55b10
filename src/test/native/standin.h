/*
 * Functions for tests, and declarations shared by the stand-in's libraries.
 *
 * The first part is the interface for tests: faults on demand, counters, switches (see README.md). The second part is
 * private to the libraries of the stand-in and of the emulation: live objects, streams, memory. All names start with
 * nccl4j_standin_, so that no symbol can be mistaken for NVIDIA's.
 */
#ifndef NCCL4J_STANDIN_H
#define NCCL4J_STANDIN_H

/* The real headers set no visibility, but their functions must be exported under -fvisibility=hidden. */
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
/* nccl.h declares ncclResetDebugInit only if this is set, as NCCL's own build does on Linux. */
#ifndef NCCL_OS_LINUX
#define NCCL_OS_LINUX 1
#endif
#include <nccl.h>
/* Or else it declares inline functions without a definition, which C does not allow. */
#include <nccl_device/utility.h>
#undef NCCL_HOST_DEVICE_INLINE
#define NCCL_HOST_DEVICE_INLINE
#include <nccl_device/core.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- for tests: in libcudart ---- */

/* Returns a description. Real libraries do not have this symbol. */
const char *nccl4j_standin_name(void);

/* Makes the nth call of a nccl, cuda or cu function from now on return `result` and do nothing else; nth 0: every call.
 * Returns 0, or -1 for an unknown function. */
int nccl4j_standin_fail(const char *function, int result, int nth);

/* Returns the calls of a function since the start or the last reset; -1 for an unknown function. */
int64_t nccl4j_standin_calls(const char *function);

/* Returns the live objects of the kind memory, pinned, stream, event, timing event, communicator, redop, graph,
 * registration, window, pool, physical, reservation, mapping, user object, connecting (calls that wait for the first
 * operations of their peers), or thread (a thread of the stand-in, which may briefly outlive its stream); -1 for an
 * unknown kind. */
int64_t nccl4j_standin_live(const char *kind);

/* Gives the stream a sticky error, as a failed kernel would: queued work is skipped. Returns 0, or -1 for no such
 * stream. */
int nccl4j_standin_fail_stream(cudaStream_t stream, int error);

/* Sets the number of devices (0 to 64); returns 0, or -1 if out of range. */
int nccl4j_standin_set_devices(int count);

/* Whether the device's primary context was created since the start or the last reset: 1 or 0, -1 for no such device. */
int nccl4j_standin_context(int device);

/* Sets the memory size of each device in bytes. */
void nccl4j_standin_set_memory(uint64_t bytes);

/* Sets how much work a stream takes before a call that enqueues more blocks; 0, the default: any amount. */
void nccl4j_standin_queue(int length);

/* Sets whether a query that returns cudaErrorNotReady sets the thread's last error. On by default. */
void nccl4j_standin_not_ready(int recorded);

/* Removes faults, sets the switches from the environment, clears counts and errors of default streams. Live objects
 * stay. */
void nccl4j_standin_reset(void);

/* ---- for tests: in libnccl ---- */

/* Makes collectives, send and receive return success without any work or check, to measure the cost of a call. */
void nccl4j_standin_set_noop(int on);

/* Switches the emulation of a pitfall of NCCL (see README.md): 3, 4, 8, 13, 14, 15 or 16. Returns 0, or -1 for another number.
 * For 13, `on` above 1 is the milliseconds that a call waits for a second thread. */
int nccl4j_standin_pitfall(int number, int on);

/* Keeps operations of non-blocking communicators that begin from now on in progress for a time; -1: until abort; 0: off,
 * which ends what is held, too, if it stays off. */
void nccl4j_standin_hold(int milliseconds);

/* Makes a rank of the communicator's clique fail: its operations no longer reach its peers, and its asynchronous error
 * becomes `asyncError` (0: unchanged). Returns 0, or -1 for no such communicator or rank. */
int nccl4j_standin_rank_fails(ncclComm_t comm, int rank, int asyncError);

/* Stores the last configuration given to an initialisation, split, shrink or grow, as the library read it. */
void nccl4j_standin_last_config(ncclConfig_t *config);

/* Sets the minimum time of collectives, sends and receives that a stream executes together, counted from the arrival of
 * the last rank; 0: the time that moving the data takes. */
void nccl4j_standin_kernel_time(int64_t nanoseconds);

/* Makes a rank never arrive at an initialisation; -1: every rank arrives. */
void nccl4j_standin_absent(int rank);

/* Sets whether the first operation of a communicator connects inside the call, where it waits for its peers' first
 * operations. On by default. */
void nccl4j_standin_connect(int on);

/* Sets the stack size in bytes that an initialisation needs; 0 by default. */
void nccl4j_standin_init_stack(int bytes);

/* Sets whether communicators support windows and one-sided operations; on by default. */
void nccl4j_standin_windows(int supported);

/* Flips a bit in the output of a rank in the next collective of more than `byte` bytes; rank -1: none. */
void nccl4j_standin_flip(int rank, int64_t byte, int bit);

/* Returns how often two threads were inside ncclParamBind or ncclParamGetParameter at once; NCCL does not lock their
 * state. */
int64_t nccl4j_standin_param_overlaps(void);

/* Returns 1 if the memory of the communicator's name, which NCCL does not copy, still has the original text, 0 if not
 * (a freed name is read, too), -1 for no such communicator. */
int nccl4j_standin_comm_name_intact(ncclComm_t comm);

/* ---- private to the libraries ---- */

/* One API function, whose calls are counted and can be made to fail. Registered before main by STANDIN_SITE. */
struct nccl4j_standin_site {
  const char *name;
  _Atomic int64_t calls;
  atomic_bool recorded;
  struct nccl4j_standin_site *next;
};
void nccl4j_standin_register(struct nccl4j_standin_site *site);
/* Counts the call; true if it is to fail, with the code in *result. */
bool nccl4j_standin_enter(struct nccl4j_standin_site *site, int *result);
void nccl4j_standin_on_reset(void (*hook)(void));
/* Returns the number in a variable of the environment, `otherwise` if it is not set. */
int64_t nccl4j_standin_number(const char *name, int64_t otherwise, int64_t least, int64_t most);
/* Ends the process, since a variable is not what the rule says. */
_Noreturn void nccl4j_standin_refuse_variable(const char *name, const char *rule);

#define STANDIN_SITE(function)                                                                     \
  static struct nccl4j_standin_site site_##function = {.name = #function};                         \
  __attribute__((constructor)) static void register_##function(void) {                             \
    nccl4j_standin_register(&site_##function);                                                     \
  }

enum nccl4j_standin_kind {
  KIND_MEMORY,
  KIND_PINNED,
  KIND_STREAM,
  KIND_EVENT,
  KIND_COMMUNICATOR,
  KIND_REDOP,
  KIND_GRAPH,
  KIND_REGISTRATION,
  KIND_WINDOW,
  KIND_THREAD,
  KIND_GRAPH_EXEC, /* looked up separately, counted with KIND_GRAPH */
  KIND_POOL,
  KIND_PHYSICAL,    /* an allocation of cuMemCreate or cuMemImportFromShareableHandle */
  KIND_RESERVATION, /* an address range of cuMemAddressReserve */
  KIND_MAPPING,     /* a range of cuMemMap or cudaIpcOpenMemHandle */
  KIND_USER_OBJECT,
  KIND_CONNECTING,   /* a call that waits for the first operations of its peers */
  KIND_TIMING_EVENT, /* counted with KIND_EVENT, too */
  KIND_COUNT
};
void nccl4j_standin_count(enum nccl4j_standin_kind kind, int delta);

/* The header of every object with a handle. The handle is the address, valid while the object is in the table; a
 * reference keeps the memory alive. */
struct nccl4j_standin_object {
  _Atomic int references;
  enum nccl4j_standin_kind kind;
  void (*destroy)(void *object);
};
void nccl4j_standin_object_add(void *object, enum nccl4j_standin_kind kind, void (*destroy)(void *));
/* Returns a new reference, or NULL if no live object of that kind has this handle. */
void *nccl4j_standin_object_get(const void *handle, enum nccl4j_standin_kind kind);
void nccl4j_standin_object_hold(void *object);
void nccl4j_standin_object_put(void *object);
/* Removes the handle from the table; true for exactly one caller, which must then put the table's reference. */
bool nccl4j_standin_object_retire(void *handle, enum nccl4j_standin_kind kind);

/* A work item of a stream. `begin` creates the state of one execution, in the order of the stream's queue: at once for a
 * plain stream, at every launch for a captured one; without it the execution uses the spec itself. It must not enqueue
 * work or ask for a stream. `start` must not wait for
 * another execution, `finish` may. `end` always follows `begin`; `release` frees the spec. */
struct nccl4j_standin_work {
  void *(*begin)(void *spec);
  cudaError_t (*start)(void *execution);
  cudaError_t (*finish)(void *execution);
  void (*end)(void *execution);
  void (*release)(void *spec);
  bool always; /* runs even on a failed stream */
  enum cudaGraphNodeType type; /* of the node, if it is captured */
};

struct nccl4j_standin_stream;
/* Returns the stream of a handle with a reference; default streams are those of `device`. NULL: no such stream. */
struct nccl4j_standin_stream *nccl4j_standin_stream_get(cudaStream_t handle, int device);
void nccl4j_standin_stream_put(struct nccl4j_standin_stream *stream);
int nccl4j_standin_stream_device(const struct nccl4j_standin_stream *stream);
/* Returns the id of the stream's capture, 0 for none. */
unsigned long long nccl4j_standin_stream_capture(struct nccl4j_standin_stream *stream);
/* Takes the spec, even if it fails. */
cudaError_t nccl4j_standin_enqueue(struct nccl4j_standin_stream *stream, const struct nccl4j_standin_work *work,
                                   void *spec);
/* Makes work enqueued in `later` from now on wait for the current work of `earlier`. */
cudaError_t nccl4j_standin_order(struct nccl4j_standin_stream *earlier, struct nccl4j_standin_stream *later);

/* Called by functions that are unsafe during a capture, such as cudaMalloc; invalidates the capture. */
cudaError_t nccl4j_standin_unsafe(void);

/* Returns this thread's current device without counting a call; a negative number if there is none. */
int nccl4j_standin_current_device(void);
int nccl4j_standin_device_count(void);
/* The PCI bus id of a device; its function is 0. */
struct nccl4j_standin_bus_id {
  unsigned domain, bus, slot;
};
struct nccl4j_standin_bus_id nccl4j_standin_bus_id(int device);
/* Whether the text is a bus id, such as 0000:1b:00.0; stores it. */
bool nccl4j_standin_bus_parse(const char *text, struct nccl4j_standin_bus_id *id);
/* Returns the device with that bus id, -1 for none. */
int nccl4j_standin_bus_device(const struct nccl4j_standin_bus_id *id);
/* Returns the number of NVLinks of each device. */
int nccl4j_standin_nvlinks(void);
void nccl4j_standin_move_to_next_device(void);
/* Creates the device's primary context, as every use of the device does; ignores a negative number. */
void nccl4j_standin_use_device(int device);
/* Returns the newest CUDA version that the driver supports. */
int nccl4j_standin_driver(void);

/* Whether a device may access these bytes; false for pageable or freed memory, and beyond an allocation's end. */
bool nccl4j_standin_reachable(const void *pointer, size_t bytes);
/* The same for kernels of one device: other devices' memory needs peer access, a mapping of cuMemMap cuMemSetAccess. */
bool nccl4j_standin_usable(const void *pointer, size_t bytes, int device);
/* Whether kernels of one device may write to these bytes; device -1: whether any device may. */
bool nccl4j_standin_writable(const void *pointer, size_t bytes, int device);
/* Returns the device of an allocation, -1 for pinned or managed memory, -2 for an unknown pointer. */
int nccl4j_standin_memory_device(const void *pointer);
cudaError_t nccl4j_standin_allocate(void **pointer, size_t bytes, int device);
cudaError_t nccl4j_standin_free(void *pointer);
/* Waits for the work that is pending now on every device, as freeing pinned memory does. */
void nccl4j_standin_wait_for_devices(void);
/* Whether these bytes lie in one allocation of nccl4j_standin_allocate. */
bool nccl4j_standin_by_nccl(const void *pointer, size_t bytes);

/* Starts a detached thread, counted as live while it runs; false if it could not be created. */
bool nccl4j_standin_thread(void *(*run)(void *), void *argument);

const char *nccl4j_standin_error_text(cudaError_t error);

#pragma GCC visibility pop

/* Short names. */
#define object_add nccl4j_standin_object_add
#define object_get nccl4j_standin_object_get
#define object_hold nccl4j_standin_object_hold
#define object_put nccl4j_standin_object_put
#define object_retire nccl4j_standin_object_retire

#endif
