/* Declarations shared by the files of the stand-in's CUDA runtime. */
#ifndef NCCL4J_STANDIN_CUDART_H
#define NCCL4J_STANDIN_CUDART_H

#include "../standin.h"

#include <pthread.h>
#include <time.h>

#define MAX_DEVICES 64

/* Every API function starts with ENTER and ends with RETURN. They count the call, apply faults, refuse calls from
 * inside a host function, fail every call but those for versions if there is no device (which stands for a missing
 * driver), and set the thread's last error. */
#define ENTER(function)                                                                            \
  do {                                                                                             \
    cudaError_t entered = cuda_enter(&site_##function);                                            \
    if (entered != cudaSuccess) return cuda_return(entered);                                       \
  } while (0)
#define RETURN(error) return cuda_return(error)

cudaError_t cuda_enter(struct nccl4j_standin_site *site);
cudaError_t cuda_return(cudaError_t error);

/* Ends the process with a message: a call, or a use of one, that is not emulated. */
_Noreturn __attribute__((format(printf, 1, 2))) void not_emulated(const char *format, ...);

/* True on a stream's worker while it runs a host function, where CUDA calls are not permitted. */
extern _Thread_local bool in_host_function;

/* Whether the NCCL of this process is the stand-in's, not NVIDIA's. */
bool standin_nccl(void);

/* ---- devices ---- */
/* Stores the current device in *device, or returns an error if there is none. */
cudaError_t device_current(int *device);
bool device_valid(int device);
/* Whether cudaDeviceEnablePeerAccess has been called. */
bool device_accesses_peer(int device, int peer);
uint64_t device_memory(void);
void devices_reset(void);
/* Makes the device this thread's current one, as cudaSetDevice does. */
cudaError_t device_select(int device);
/* Returns the device whose primary context is current in this thread, -1 for none. */
int device_bound(void);
/* Leaves this thread without a context, until it selects a device or calls what needs a context. */
void device_unbind(void);
/* The attributes of the runtime and of the driver have the same numbers. */
cudaError_t device_attribute(int *value, int attribute, int device);
void device_uuid(int device, char uuid[16]);

/* ---- completions: a point in a stream that others can wait for ---- */
struct completion {
  _Atomic int references;
  pthread_mutex_t lock;
  pthread_cond_t reached;
  bool done;
  cudaError_t error;
  struct timespec time;
};
struct completion *completion_new(void);
void completion_hold(struct completion *c);
void completion_put(struct completion *c);
void completion_signal(struct completion *c, cudaError_t error);
cudaError_t completion_wait(struct completion *c);
/* Whether it has been signalled, and without an error. */
bool completion_reached(struct completion *c);

/* Pauses between polls that found nothing to do; *polls is 0 at first, and again after progress. */
void poll_pause(unsigned int *polls);

/* ---- streams ---- */
/* The error of this worker's stream, for work that runs even on a failed stream. */
extern _Thread_local cudaError_t stream_error;

struct capture;

struct item;

struct nccl4j_standin_stream {
  struct nccl4j_standin_object object;
  int device;
  unsigned int flags;
  int priority;
  unsigned long long id;
  bool legacy, owned_by_thread;

  pthread_mutex_t lock;
  pthread_cond_t more;     /* for the worker */
  pthread_cond_t progress; /* for threads that synchronise */
  struct item *head, *tail;
  uint64_t submitted, completed;
  int waiters;
  bool working, closing;
  cudaError_t error;

  struct nccl4j_standin_stream *next, *previous; /* of all streams, under streams_lock */

  struct capture *capture; /* this and the following under graphs_lock */
  struct edges *frontier;  /* what the next captured node depends on */
  cudaGraphNode_t *frontier_nodes; /* the last answers of cudaStreamGetCaptureInfo */
  cudaGraphEdgeData *frontier_data;
};
typedef struct nccl4j_standin_stream stream_t;

/* Signals `c` after everything that the stream has now. */
void stream_mark(stream_t *s, struct completion *c);
cudaError_t stream_wait_for(stream_t *s, struct completion *c);
/* Calls `then`, at once or on a worker, when everything that is pending now in any stream is complete. */
void streams_after_pending(void (*then)(void *), void *argument);
cudaError_t stream_synchronize(stream_t *s);
/* Whether work that is enqueued now would run at once: nothing is pending before it, and the stream has not failed. */
bool stream_idle(stream_t *s);
/* Waits for the work that is enqueued now on the device (-1: on every device); other threads may enqueue more
 * meanwhile. */
cudaError_t device_synchronize(int device);
/* Clears the errors of the default streams, which cannot be destroyed. */
void streams_reset(void);

/* ---- events ---- */
cudaError_t event_record(cudaEvent_t event, stream_t *s);
/* Records the event in a capture, so that it depends on the beginning of the kernel that was captured last. */
cudaError_t event_record_begun(cudaEvent_t event, stream_t *s);

/* ---- graphs and capture ---- */
extern atomic_int captures_active;
struct edges;
/* During a capture, makes the work a node and sets *captured. */
cudaError_t capture_enqueue(stream_t *s, const struct nccl4j_standin_work *work, void *spec, bool *captured);
/* The result of synchronising or querying a stream: if it is capturing, an error, and the capture is invalidated. */
cudaError_t capture_forbids_wait(stream_t *s);
cudaError_t capture_forbids_device_wait(int device);
cudaError_t capture_forbids_legacy(const stream_t *s);
/* Stores what an event depends on that is recorded in a capturing stream: the ends, or the beginnings, of the nodes at
 * its frontier. The caller frees the edges. */
cudaError_t capture_record(stream_t *s, bool beginning, unsigned long long *capture, struct edges **edges,
                           bool *captured);
cudaError_t capture_wait(stream_t *s, unsigned long long capture, struct edges *edges, bool *captured);
cudaError_t capture_order(stream_t *earlier, stream_t *later, bool *captured);
void capture_stream_gone(stream_t *s);

#endif
