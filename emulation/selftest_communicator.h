/*
 * Communicators built by hand in memory, for selftest_kernels.c: the structures of an NCCL release as far as its
 * kernels read them, declared here once more so that they check the tables in kernels/release_*.c. All ranks are in
 * this process; each pair of them has connections in both directions, which share the buffer of the receiver.
 */
#ifndef NCCL4J_SELFTEST_COMMUNICATOR_H
#define NCCL4J_SELFTEST_COMMUNICATOR_H

#include "selftest_check.h"
#include "standin.h"

#include "kernels/kernel.h"
/* The numbers of NCCL's functions, which the library does not export. */
#include "kernels/function.c"

#include <cuda.h>
#include <string.h>

#ifndef RELEASE
#define RELEASE 23007
#endif
#define BROADCASTS (RELEASE >= 22900) /* whether the release has those of groups */

#define RANKS_MOST 17
#define CHANNELS_MOST 3
#define SLOTS 8
#define STEP_SIMPLE 4096
#define STEP_LL 1024
#define STEP_LL128 4096
#define MESSAGE_CHUNK 4096
#define ARGUMENT_BYTES 4096
#define GUARD_BYTES 4096 /* after a buffer, which no slot may reach */
#define GUARD 0x5c

enum { PEER_WRITES = 1, PEER_READS = 2 };

struct slot {
  int mode, offset;
  int64_t size;
  void *pointer;
};

struct connection {
  char *buffers[3];
  void *handles[3];
  uint64_t *tail, *head;
  int flags, shared, step_bytes;
  void **exchange;
  uint64_t *argument_exchange;
  struct slot *slots;
  uint64_t step, cleaning;
  uint64_t network_device[4];
};

struct peer {
  struct connection send[2], receive[2];
};

struct channel {
  _Alignas(16) struct peer **peers;
  int previous, next, *ring;
#if RELEASE >= 22900
  int *rank_to_index;
#endif
  int index, padding;
  int tree_depth, tree_up, tree_down[3];
  char others[300];
  uint64_t works_done;
};

struct communicator {
  int rank, ranks, node, nodes, buffer_bytes[3], p2p_chunk;
#if RELEASE >= 23000
  bool across_cliques;
#endif
  int all_nvlink, *dense;
  uint32_t *abort;
  struct channel *channels;
  int *local_ranks;
  void *started, *completed;
  _Alignas(16) struct channel channel[64];
};

struct collective_work {
  uint32_t first : 8, last : 8, warps : 8, argument_is_address : 1, registered : 1, network_registered : 1,
      one_node : 1, direct : 2, one_rank_per_node : 1, profiled : 1;
  uint32_t root;
#if RELEASE >= 22900
  char padding[16];
#endif
  void *receive, *send;
#if RELEASE >= 22900
  uint64_t padding2;
#endif
  uintptr_t send_offset, receive_offset, *remote_sends, *remote_receives;
  size_t counts[3];
  uint64_t grains_first : 21, grains_middle : 21, grains_last : 21;
  uint64_t argument;
#if RELEASE >= 22900
  uint64_t padding3;
#endif
};

struct p2p_work {
  void *send, *receive;
  size_t send_bytes, receive_bytes;
  int send_rank, receive_rank;
  uint8_t channels, base, send_channels, receive_channels, send_chunk, receive_chunk;
  uint8_t send_ll : 1, receive_ll : 1, send_network : 1, receive_network : 1, send_registered : 1,
      receive_registered : 1, profiled : 1;
};

struct broadcast_work {
  int depth, chunk;
  void *send, *receive;
  size_t bytes, bytes_done;
  uint64_t padding;
};

struct batch_header {
  uint32_t jump : 14, extends : 1, type : 2, function : 15;
  uint32_t offset;
  uint64_t set;
};

struct arguments {
  struct communicator *communicator;
  uint64_t channels;
  uint8_t storage;
  uint32_t mask;
  void *works;
};

_Static_assert(sizeof(struct connection) == 152 && sizeof(struct peer) == 608, "connections");
_Static_assert(sizeof(struct channel) == 368 && offsetof(struct communicator, channel) == 96, "channels");
_Static_assert(offsetof(struct channel, works_done) == (RELEASE >= 22900 ? 360 : 352), "channels");
_Static_assert(offsetof(struct channel, tree_up) == (RELEASE >= 22900 ? 44 : 36), "channels");
_Static_assert(sizeof(struct collective_work) == (RELEASE >= 22900 ? 128 : 96), "works");
_Static_assert(sizeof(struct p2p_work) == 48, "works");
_Static_assert(sizeof(struct broadcast_work) == 48 && sizeof(struct arguments) == 32, "works");

/* This program is the NCCL library of its process, for the emulation. */
static int release_version = RELEASE;

__attribute__((visibility("default"))) ncclResult_t ncclGetVersion(int *version) {
  *version = release_version;
  return ncclSuccess;
}

struct world {
  int ranks, channels;
  uint32_t aborted;
  struct communicator *communicators[RANKS_MOST];
};

static inline void *zeroed(size_t bytes) {
  void *memory = calloc(1, bytes ? bytes : 1);
  CHECK(memory != NULL);
  return memory;
}

static inline size_t step_bytes_of(enum protocol protocol) {
  return protocol == LL ? STEP_LL : protocol == LL128 ? STEP_LL128 : STEP_SIMPLE;
}

static inline void connect_ranks(struct connection *send, struct connection *receive) {
  for (int protocol = LL; protocol <= SIMPLE; protocol++) {
    size_t bytes = SLOTS * step_bytes_of((enum protocol)protocol);
    receive->buffers[protocol] = zeroed(bytes + GUARD_BYTES);
    memset(receive->buffers[protocol] + bytes, GUARD, GUARD_BYTES);
  }
  receive->tail = zeroed(sizeof(uint64_t));
  receive->head = zeroed(sizeof(uint64_t));
  receive->exchange = zeroed(sizeof(void *));
  receive->step_bytes = STEP_SIMPLE;
  *send = *receive;
}

static inline void disconnect(struct connection *receive) {
  for (int protocol = LL; protocol <= SIMPLE; protocol++) {
    const char *guard = receive->buffers[protocol] + SLOTS * step_bytes_of((enum protocol)protocol);
    for (int i = 0; i < GUARD_BYTES; i++) CHECK(guard[i] == GUARD);
    free(receive->buffers[protocol]);
  }
  free(receive->tail);
  free(receive->head);
  free(receive->exchange);
}

/* A binary tree in which rank 1 has a third child. */
static inline int parent_of(int rank) { return rank == 0 ? -1 : rank == 5 ? 1 : (rank - 1) / 2; }

/* Creates a communicator for each rank. The ring of channel c goes from rank r to r + c + 1, or backwards for odd c. */
static inline struct world *world_new(int ranks, int channels) {
  struct world *w = zeroed(sizeof *w);
  w->ranks = ranks;
  w->channels = channels;
  for (int r = 0; r < ranks; r++) {
    struct communicator *c = w->communicators[r] = aligned_alloc(16, sizeof *c);
    CHECK(c != NULL);
    memset(c, 0, sizeof *c);
    c->rank = r;
    c->ranks = ranks;
    c->nodes = 1;
    c->buffer_bytes[LL] = SLOTS * STEP_LL;
    c->buffer_bytes[LL128] = SLOTS * STEP_LL128;
    c->buffer_bytes[SIMPLE] = SLOTS * STEP_SIMPLE;
    c->p2p_chunk = MESSAGE_CHUNK;
    c->abort = &w->aborted;
    c->channels = c->channel;
    c->local_ranks = zeroed((size_t)ranks * sizeof(int));
    c->started = zeroed(64 * 1024);
    c->completed = zeroed(64 * 1024);
    for (int i = 0; i < ranks; i++) c->local_ranks[i] = i;
    for (int k = 0; k < channels; k++) {
      struct channel *channel = &c->channel[k];
      channel->peers = zeroed((size_t)ranks * sizeof(void *));
      for (int i = 0; i < ranks; i++) channel->peers[i] = zeroed(sizeof(struct peer));
      int forward = k % 2 == 0 ? 1 : ranks - 1;
      channel->next = (r + forward) % ranks;
      channel->previous = (r + ranks - forward) % ranks;
      channel->ring = zeroed((size_t)ranks * sizeof(int));
      for (int i = 0; i < ranks; i++) channel->ring[i] = (r + i * forward) % ranks;
      channel->index = k % 2 == 0 ? r : (ranks - r) % ranks;
      channel->tree_up = parent_of(r);
      for (int i = 0; i < 3; i++) channel->tree_down[i] = -1;
      for (int i = r + 1, children = 0; i < ranks; i++)
        if (parent_of(i) == r) channel->tree_down[children++] = i;
    }
  }
  for (int k = 0; k < channels; k++)
    for (int from = 0; from < ranks; from++)
      for (int to = 0; to < ranks; to++)
        for (int i = 0; i < 2; i++)
          connect_ranks(&w->communicators[from]->channel[k].peers[to]->send[i],
                        &w->communicators[to]->channel[k].peers[from]->receive[i]);
  return w;
}

static inline void world_free(struct world *w) {
  for (int r = 0; r < w->ranks; r++) {
    struct communicator *c = w->communicators[r];
    for (int k = 0; k < w->channels; k++) {
      for (int i = 0; i < w->ranks; i++) {
        for (int j = 0; j < 2; j++) disconnect(&c->channel[k].peers[i]->receive[j]);
        free(c->channel[k].peers[i]);
      }
      free(c->channel[k].peers);
      free(c->channel[k].ring);
    }
    free(c->local_ranks);
    free(c->started);
    free(c->completed);
    free(c);
  }
  free(w);
}

static inline int function_number(struct function wanted) {
  struct function f;
  for (int i = 0; function_find(i, BROADCASTS, &f); i++)
    if (memcmp(&f, &wanted, sizeof f) == 0) return i;
  CHECK(!"there is such a function");
  return -1;
}

/* The arguments of one rank's launch, with works of one kind that all channels execute. */
struct launch_arguments {
  _Alignas(16) char bytes[ARGUMENT_BYTES];
  size_t used;
};

static inline void arguments_begin(struct launch_arguments *a, struct world *w, int rank) {
  memset(a, 0, sizeof *a);
  struct arguments *header = (struct arguments *)a->bytes;
  header->communicator = w->communicators[rank];
  header->channels = (UINT64_C(1) << w->channels) - 1;
  a->used = sizeof *header;
}

/* Adds the only batch of each channel and its works; `mine` limits a channel to some of them. */
static inline void arguments_batch(struct launch_arguments *a, struct world *w, int type, int function,
                                   const void *works, size_t bytes, int count, const uint64_t *mine) {
  size_t headers = (size_t)w->channels * sizeof(struct batch_header);
  for (int k = 0; k < w->channels; k++) {
    uint64_t all = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    struct batch_header header = {.type = (uint32_t)type & 3,
                                  .function = (uint32_t)function & 0x7fff,
                                  .offset = (uint32_t)(a->used + headers),
                                  .set = mine ? mine[k] : all};
    memcpy(a->bytes + a->used + (size_t)k * sizeof header, &header, sizeof header);
  }
  CHECK(a->used + headers + bytes * (size_t)count <= sizeof a->bytes);
  memcpy(a->bytes + a->used + headers, works, bytes * (size_t)count);
  a->used += headers + bytes * (size_t)count;
}

static inline struct kernel *arguments_launch(const struct launch_arguments *a, struct world *w, const char *name) {
  struct kernel_shape shape = {.grid = {(unsigned)w->channels, 1, 1}, .block = {640, 1, 1}};
  return kernel_new(name, &shape, a->bytes, a->used, 0);
}

/* Polls all kernels in turn until they are done; the order depends on the seed. `between` is a proxy's part. */
static inline void run_all(struct kernel **kernels, int count, unsigned seed, bool (*between)(void *state),
                           void *state) {
  bool done[RANKS_MOST] = {false};
  int left = count, idle = 0;
  while (left > 0) {
    seed = seed * 1103515245 + 12345;
    int i = (int)(seed >> 16) % count;
    idle++;
    if (between != NULL && between(state)) idle = 0;
    if (done[i]) continue;
    enum kernel_progress progress = kernel_poll(kernels[i]);
    CHECK(progress != KERNEL_FAILED);
    if (progress == KERNEL_DONE) done[i] = true, left--;
    if (progress != KERNEL_WAITS) idle = 0;
    CHECK(idle < 10000); /* the kernels wait for each other indefinitely */
  }
  for (int i = 0; i < count; i++) kernel_free(kernels[i]);
}

/* Tells all ends of connections how a peer may access a registered buffer. */
static inline void set_flags(struct world *w, int flags) {
  for (int r = 0; r < w->ranks; r++)
    for (int k = 0; k < w->channels; k++)
      for (int i = 0; i < w->ranks; i++)
        for (int j = 0; j < 2; j++)
          w->communicators[r]->channel[k].peers[i]->send[j].flags =
              w->communicators[r]->channel[k].peers[i]->receive[j].flags = flags;
}

/* Whether no data was in a slot of the simple protocol. */
static inline bool buffers_are_unused(const struct world *w, int index) {
  for (int r = 0; r < w->ranks; r++)
    for (int k = 0; k < w->channels; k++)
      for (int i = 0; i < w->ranks; i++)
        for (int byte = 0; byte < SLOTS * STEP_SIMPLE; byte++)
          if (w->communicators[r]->channel[k].peers[i]->receive[index].buffers[SIMPLE][byte] != 0) return false;
  return true;
}

/* ---- a proxy: what NCCL's thread for the network does between two ranks, for one protocol and slice size ---- */

struct proxy {
  struct world *world;
  enum protocol protocol;
  uint64_t steps; /* of a slice */
  uint64_t moved[CHANNELS_MOST];
  int64_t first_size; /* bytes of the first slice of all */
  struct connection *send[CHANNELS_MOST], *receive[CHANNELS_MOST], own[CHANNELS_MOST];
  struct slot slots[CHANNELS_MOST][SLOTS];
};

static inline void proxy_open(struct proxy *proxy, struct world *w, enum protocol protocol, uint64_t steps, int index) {
  memset(proxy, 0, sizeof *proxy);
  proxy->world = w;
  proxy->protocol = protocol;
  proxy->steps = steps;
  proxy->first_size = -1;
  for (int k = 0; k < w->channels; k++) {
    proxy->send[k] = &w->communicators[0]->channel[k].peers[1]->send[index];
    proxy->receive[k] = &w->communicators[1]->channel[k].peers[0]->receive[index];
    struct connection unused;
    connect_ranks(&unused, &proxy->own[k]);
    uint64_t step = proxy->moved[k] = *proxy->receive[k]->tail = *proxy->receive[k]->head = proxy->send[k]->step;
    *proxy->send[k] = proxy->own[k];
    proxy->send[k]->step = *proxy->send[k]->head = *proxy->send[k]->tail = step;
    proxy->send[k]->slots = proxy->slots[k];
    for (int i = 0; i < SLOTS; i++) proxy->slots[k][i].size = -1;
    if (steps > 1) continue;
    for (int i = 0; i < SLOTS; i++) { /* the slots are elsewhere in the buffer */
      proxy->slots[k][i].mode = 1;
      proxy->slots[k][i].offset = i * 3 % SLOTS * STEP_SIMPLE;
    }
  }
}

static inline bool flags_are_set(enum protocol protocol, const uint64_t *lines, int64_t bytes, uint64_t step) {
  for (int64_t word = 0; word < bytes / 8; word++) {
    if (protocol == LL && lines[word] >> 32 != (uint32_t)(step + 1)) return false;
    if (protocol == LL128 && word % 16 == 15 && lines[word] != step + 1) return false;
  }
  return true;
}

static inline bool proxy_move(void *state) {
  struct proxy *proxy = state;
  bool moved = false;
  for (int k = 0; k < proxy->world->channels; k++) {
    struct connection *send = proxy->send[k], *receive = proxy->receive[k];
    uint64_t step = proxy->moved[k];
    struct slot *slot = &proxy->slots[k][step % SLOTS];
    moved = moved || *send->head != *receive->head;
    *send->head = *receive->head;
    if (slot->size < 0) continue;
    size_t place = step % SLOTS * step_bytes_of(proxy->protocol);
    char *from =
        send->buffers[proxy->protocol] + (slot->mode && proxy->protocol == SIMPLE ? (size_t)slot->offset : place);
    if (proxy->protocol == SIMPLE && *send->tail < step + proxy->steps) continue;
    if (proxy->protocol == LL128 && *send->tail < step + 1) continue;
    if (proxy->protocol != SIMPLE && !flags_are_set(proxy->protocol, (uint64_t *)from, slot->size, step)) continue;
    CHECK(slot->size <= (int64_t)(step_bytes_of(proxy->protocol) * proxy->steps));
    memcpy(receive->buffers[proxy->protocol] + place, from, (size_t)slot->size);
    if (proxy->first_size < 0) proxy->first_size = slot->size;
    slot->size = -1;
    proxy->moved[k] += proxy->steps;
    *receive->tail = proxy->moved[k];
    moved = true;
  }
  return moved;
}

static inline void proxy_close(struct proxy *proxy) {
  for (int k = 0; k < proxy->world->channels; k++) {
    CHECK(proxy->send[k]->step == proxy->moved[k]);
    disconnect(&proxy->own[k]);
  }
}

/* Memory that a device may access. */
static inline void *device_memory(size_t bytes) {
  void *memory;
  CHECK(cudaMalloc(&memory, bytes + 64) == cudaSuccess);
  return memory;
}

static inline void *driver_function(const char *name) {
  void *function;
  CHECK(cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, NULL) == cudaSuccess);
  return function;
}

/* Maps memory that device 0 may read only; it stays until the process ends. */
static inline void *read_only_memory(void) {
  const size_t bytes = 2 << 20;
  CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device};
  CUmemAccessDesc access = {.location = device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr base;
  CHECK(((__typeof__(cuMemCreate) *)driver_function("cuMemCreate"))(&handle, bytes, &properties, 0) == 0);
  CHECK(((__typeof__(cuMemAddressReserve) *)driver_function("cuMemAddressReserve"))(&base, bytes, 0, 0, 0) == 0);
  CHECK(((__typeof__(cuMemMap) *)driver_function("cuMemMap"))(base, bytes, 0, handle, 0) == 0);
  CHECK(((__typeof__(cuMemSetAccess) *)driver_function("cuMemSetAccess"))(base, bytes, &access, 1) == 0);
  return (void *)(uintptr_t)base;
}

#endif
