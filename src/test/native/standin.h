/*
 * What the two stand-in libraries share, and what a test may call.
 *
 * The upper half is the public face for tests: faults on demand, counters, switches (README.md says how each is meant).
 * The lower half is private between libnccl and libcudart of the stand-in: live objects, the stream machinery, the
 * look-up of memory. Everything here is named nccl4j_standin_*, so that no symbol can be taken for NVIDIA's.
 */
#ifndef NCCL4J_STANDIN_H
#define NCCL4J_STANDIN_H

/* The real headers know no visibility; under -fvisibility=hidden their functions must be exported all the same. */
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
/* nccl.h declares ncclResetDebugInit only where this is set, as NCCL's own build does on Linux. */
#ifndef NCCL_OS_LINUX
#define NCCL_OS_LINUX 1
#endif
#include <nccl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- for tests: in libcudart ---- */

/* Says what this is. Real libraries do not have the symbol. */
const char *nccl4j_standin_name(void);

/* The nth call from now of a nccl or cuda function answers `result` and does nothing else; nth 0: every call.
 * 0, or -1 where no such function is known. */
int nccl4j_standin_fail(const char *function, int result, int nth);

/* Calls of a function since the start or the last reset; -1 where no such function is known. */
int64_t nccl4j_standin_calls(const char *function);

/* Objects alive now, of the kind memory, pinned, stream, event, communicator, redop, graph, registration, window, or
 * thread (a thread of the stand-in, which may outlive its stream for a moment); -1 where no such kind is known. */
int64_t nccl4j_standin_live(const char *kind);

/* Gives the stream a sticky error, as a failed kernel would: what is queued is skipped. 0, or -1 for no such stream. */
int nccl4j_standin_fail_stream(cudaStream_t stream, int error);

/* How many devices there are from now on (0 to 64); 0, or -1 out of range. */
int nccl4j_standin_set_devices(int count);

/* Whether anything has made the device's primary context since the start or the last reset: 1 or 0, -1 for no such
 * device. */
int nccl4j_standin_context(int device);

/* Bytes that each device pretends to have from now on. */
void nccl4j_standin_set_memory(uint64_t bytes);

/* Faults off, switches as the environment has them, counts to zero, default streams well again. Live objects stay. */
void nccl4j_standin_reset(void);

/* ---- for tests: in libnccl ---- */

/* Collectives, send and receive answer success and do nothing, not even checks: what a call alone costs. */
void nccl4j_standin_set_noop(int on);

/* Switches one of NCCL's traps (see README.md): 3, 4, 8, 13 and 14 are known. 0, or -1 for another number. */
int nccl4j_standin_trap(int number, int on);

/* Operations of non-blocking communicators that begin from now on stay in progress for so long; -1 for ever; 0 off. */
void nccl4j_standin_hold(int milliseconds);

/* The given rank of the communicator's clique falls silent: nothing it enqueues arrives at its peers any more, and its
 * asynchronous error becomes `asyncError` (0 leaves it alone). 0, or -1 for no such communicator or rank. */
int nccl4j_standin_rank_fails(ncclComm_t comm, int rank, int asyncError);

/* The configuration that an initialisation, split, shrink or grow was given last, as the library read it. */
void nccl4j_standin_last_config(ncclConfig_t *config);

/* From now on the collectives, sends and receives that a stream executes together take at least this long, from when the
 * last of their ranks has arrived; 0: as long as moving the data takes. */
void nccl4j_standin_kernel_time(int64_t nanoseconds);

/* From now on this rank never arrives at an initialisation; -1: every rank arrives. */
void nccl4j_standin_absent(int rank);

/* Whether the first operation of a communicator connects inside the call from now on, which so waits for its peers'
 * first; so at first. */
void nccl4j_standin_connect(int on);

/* How many bytes of its thread's stack an initialisation needs from now on; 0 at first. */
void nccl4j_standin_init_stack(int bytes);

/* Whether communicators support windows and one-sided operations from now on; they do at first. */
void nccl4j_standin_windows(int supported);

/* How often two threads were inside ncclParamBind or ncclParamGetParameter at once, whose state NCCL does not lock. */
int64_t nccl4j_standin_param_overlaps(void);

/* 1 where the communicator's name, which NCCL does not copy, still reads as when it was made; 0 where it does not (or
 * worse: its memory is read); -1 for no such communicator. */
int nccl4j_standin_comm_name_intact(ncclComm_t comm);

/* ---- private, between the two libraries ---- */

/* One API function: counted, and made to fail on demand. Registered before main by STANDIN_SITE. */
struct nccl4j_standin_site {
  const char *name;
  _Atomic int64_t calls;
  atomic_bool recorded;
  struct nccl4j_standin_site *next;
};
void nccl4j_standin_register(struct nccl4j_standin_site *site);
/* Counts the call; true where it is to fail, with the code in *result. */
bool nccl4j_standin_enter(struct nccl4j_standin_site *site, int *result);
void nccl4j_standin_on_reset(void (*hook)(void));

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
  KIND_GRAPH_EXEC, /* looked up apart, counted with KIND_GRAPH */
  KIND_COUNT
};
void nccl4j_standin_count(enum nccl4j_standin_kind kind, int delta);

/* Whatever has a handle begins with this. The handle is the address, good while the object is in the table; a
 * reference keeps the memory for those who still work on it. */
struct nccl4j_standin_object {
  _Atomic int references;
  enum nccl4j_standin_kind kind;
  void (*destroy)(void *object);
};
void nccl4j_standin_object_add(void *object, enum nccl4j_standin_kind kind, void (*destroy)(void *));
/* A new reference, or NULL where no live object of that kind has this handle. */
void *nccl4j_standin_object_get(const void *handle, enum nccl4j_standin_kind kind);
void nccl4j_standin_object_hold(void *object);
void nccl4j_standin_object_put(void *object);
/* Takes the handle out of the table; true for exactly one caller, who then gives back the table's reference. */
bool nccl4j_standin_object_retire(void *handle, enum nccl4j_standin_kind kind);

/* Something for a stream to do. `begin` makes what one execution needs, in the caller's order: at once for a plain
 * stream, at every launch for a captured one; without it the execution works on the spec itself. `start` must not wait
 * for another execution, `finish` may. `end` always follows `begin`; `release` frees the spec. */
struct nccl4j_standin_work {
  void *(*begin)(void *spec);
  cudaError_t (*start)(void *execution);
  cudaError_t (*finish)(void *execution);
  void (*end)(void *execution);
  void (*release)(void *spec);
  bool always; /* also on a stream that has failed */
};

struct nccl4j_standin_stream;
/* The stream behind a handle, with a reference; the default streams are those of `device`. NULL: no such stream. */
struct nccl4j_standin_stream *nccl4j_standin_stream_get(cudaStream_t handle, int device);
void nccl4j_standin_stream_put(struct nccl4j_standin_stream *stream);
int nccl4j_standin_stream_device(const struct nccl4j_standin_stream *stream);
/* The capture that the stream is in, 0 for none. */
unsigned long long nccl4j_standin_stream_capture(struct nccl4j_standin_stream *stream);
/* Takes the spec, also when it fails. */
cudaError_t nccl4j_standin_enqueue(struct nccl4j_standin_stream *stream, const struct nccl4j_standin_work *work,
                                   void *spec);
/* What is enqueued in `later` from now on waits for what `earlier` has now. */
cudaError_t nccl4j_standin_order(struct nccl4j_standin_stream *earlier, struct nccl4j_standin_stream *later);

/* What CUDA forbids while a capture is on, as cudaMalloc; invalidates the capture. */
cudaError_t nccl4j_standin_unsafe(void);

/* The current device of this thread without counting a call; a negative number where there is none. */
int nccl4j_standin_current_device(void);
int nccl4j_standin_device_count(void);
void nccl4j_standin_move_to_next_device(void);
/* Makes the device's primary context, as whatever uses the device does; a negative number is no device. */
void nccl4j_standin_use_device(int device);
/* The newest CUDA that the driver can run. */
int nccl4j_standin_driver(void);

/* May a device touch these bytes? False for pageable or freed memory, and beyond an allocation's end. */
bool nccl4j_standin_reachable(const void *pointer, size_t bytes);
/* The device of an allocation, -1 for pinned or managed memory, -2 where nothing is known of the pointer. */
int nccl4j_standin_memory_device(const void *pointer);
cudaError_t nccl4j_standin_allocate(void **pointer, size_t bytes, int device);
cudaError_t nccl4j_standin_free(void *pointer);
/* Are these bytes of one allocation made by nccl4j_standin_allocate? */
bool nccl4j_standin_by_nccl(const void *pointer, size_t bytes);

/* A detached thread that counts as alive while it runs; false where there is none to be had. */
bool nccl4j_standin_thread(void *(*run)(void *), void *argument);

const char *nccl4j_standin_error_text(cudaError_t error);

#pragma GCC visibility pop

/* Short names for the code inside. */
#define object_add nccl4j_standin_object_add
#define object_get nccl4j_standin_object_get
#define object_hold nccl4j_standin_object_hold
#define object_put nccl4j_standin_object_put
#define object_retire nccl4j_standin_object_retire

#endif
