/* What the rooms of the stand-in's CUDA runtime share among themselves. */
#ifndef NCCL4J_STANDIN_CUDART_H
#define NCCL4J_STANDIN_CUDART_H

#include "../standin.h"

#include <pthread.h>
#include <time.h>

#define MAX_DEVICES 64

/* Every API function starts with ENTER and ends with ANSWER, so that calls are counted, faults strike, calls from
 * inside a host function are refused, no call but those for versions works without devices (which is to be without a
 * driver), and the thread's last error is kept. */
#define ENTER(function)                                                                            \
  do {                                                                                             \
    cudaError_t entered = cuda_enter(&site_##function);                                            \
    if (entered != cudaSuccess) return cuda_answer(entered);                                       \
  } while (0)
#define ANSWER(error) return cuda_answer(error)

cudaError_t cuda_enter(struct nccl4j_standin_site *site);
cudaError_t cuda_answer(cudaError_t error);

/* True on a stream's worker while it runs a host function, where CUDA calls are not permitted. */
extern _Thread_local bool in_host_function;

/* ---- devices ---- */
/* The current device in *device, or why there is none. */
cudaError_t device_current(int *device);
bool device_valid(int device);
uint64_t device_memory(void);
void devices_reset(void);

/* ---- completions: a point in some stream's order that others can wait for ---- */
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

/* ---- streams ---- */
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
  pthread_cond_t progress; /* for those who synchronise */
  struct item *head, *tail;
  uint64_t submitted, completed;
  int waiters;
  bool working, closing;
  cudaError_t error;

  struct nccl4j_standin_stream *next, *previous; /* of all streams, under streams_lock */

  struct capture *capture; /* under capture_lock */
  struct node_set *frontier;
};
typedef struct nccl4j_standin_stream stream_t;

/* A signal of `c` behind everything the stream has now. */
void stream_mark(stream_t *s, struct completion *c);
cudaError_t stream_wait_for(stream_t *s, struct completion *c);
/* Calls back, on some worker or at once, when everything that any stream has pending now is through. */
void streams_after_pending(void (*then)(void *), void *argument);
cudaError_t stream_synchronize(stream_t *s);
/* Waits until the device has done what is enqueued now, -1: every device; meanwhile others may enqueue more. */
cudaError_t device_synchronize(int device);
bool stream_is_handle_default(cudaStream_t handle);
/* The default streams forget their failures: nobody can destroy them. */
void streams_reset(void);

/* ---- graphs and capture ---- */
extern atomic_int captures_active;
struct node_set;
/* In a capture the work becomes a node, and *captured is set. */
cudaError_t capture_enqueue(stream_t *s, const struct nccl4j_standin_work *work, void *spec, bool *captured);
/* CUDA's answer to synchronising or querying a stream: refused, and the capture spoilt, where it is capturing. */
cudaError_t capture_forbids_wait(stream_t *s);
cudaError_t capture_forbids_device_wait(int device);
cudaError_t capture_forbids_legacy(const stream_t *s);
cudaError_t capture_record(stream_t *s, unsigned long long *capture, struct node_set **nodes, bool *captured);
cudaError_t capture_wait(stream_t *s, unsigned long long capture, struct node_set *nodes, bool *captured);
cudaError_t capture_order(stream_t *earlier, stream_t *later, bool *captured);
void capture_stream_gone(stream_t *s);
void node_set_free(struct node_set *nodes);


#endif
