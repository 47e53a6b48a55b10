/* Where NCCL's releases keep the few fields of their private structures that the kernels need. */
#ifndef NCCL4J_STANDIN_RELEASE_H
#define NCCL4J_STANDIN_RELEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STEPS 8 /* slots of a connection's buffer */
#define TREE_CHILDREN 3

/* An integer of a structure; with a width, `width` bits of it from bit `shift`. One that a release lacks has no bytes,
 * and is 0. */
struct field {
  uint16_t offset;
  uint8_t bytes, shift, width;
};

/* Values of a field: a whole integer, or bits of one. */
/* clang-format off */
#define WHOLE(offset, bytes) {offset, bytes, 0, 0}
#define BITS(offset, bytes, shift, width) {offset, bytes, shift, width}
/* clang-format on */

struct release {
  /* The parameter of a kernel. The batches follow it, the first ones in the order of the blocks. */
  size_t arguments_bytes;
  struct {
    struct field communicator, channels, storage, mask, works;
  } arguments;
  size_t batch_bytes;
  struct {
    struct field jump, extends, type, function, offset, set;
  } batch;

  /* The device's copy of a communicator, and its channels. */
  struct {
    struct field rank, ranks, nodes, buffer_bytes, p2p_chunk, across_cliques, all_nvlink, abort, channels,
        local_ranks;
    struct field started, completed; /* the profiler's counters */
  } communicator;
  size_t channels_offset, channel_bytes;
  struct {
    struct field peers, previous, next, ring, ring_index, tree_up, tree_down, works_done;
  } channel;
  size_t profiler_bytes, profiler_events;

  /* A connection to a peer. */
  size_t connection_bytes, receive_offset;
  struct {
    struct field buffer, tail, head, flags, step_bytes, exchange, slots, step, network_device;
  } connection;
  size_t slot_bytes;
  struct {
    struct field mode, offset, size;
  } slot;

  /* What a channel has to do. */
  size_t collective_bytes, registered_bytes, p2p_bytes;
  size_t broadcast_bytes; /* 0: broadcasts of a group are those of single calls */
  struct {
    struct field first, last, warps, argument_is_address, registered, network_registered, direct;
    struct field profiled, root, receive, send, receive_offset, remote_receives;
    struct field count[3], grains[3]; /* of the first channel, those in the middle, the last */
    struct field argument;
  } collective;
  struct {
    struct field send, receive, send_bytes, receive_bytes, send_rank, receive_rank, channels, base, send_channels;
    struct field receive_channels, send_chunk, receive_chunk, send_ll, receive_ll, send_network, receive_network;
    struct field send_registered, receive_registered, profiled;
  } p2p;
  struct {
    struct field depth, chunk, send, receive, bytes, done;
  } broadcast;

  /* The parameter of a kernel for symmetric memory. The ranges of the blocks follow it, and then the works. */
  size_t symmetric_bytes, range_bytes, symmetric_work_bytes;
  struct {
    struct field ranks, local_rank, local_ranks, base, stride, barrier, barriers, abort, lines, slots, blocks;
  } symmetric;
  struct {
    struct field last, fraction;
  } range;
  struct {
    struct field argument, count, input_window, output_window, input_offset, output_offset, first_block, block_count;
  } symmetric_work;
  struct {
    struct field base, stride;
  } window;
};

extern const struct release release_2_28_9, release_2_30_7;

/* Returns the release of the NCCL library of this process; ends the process if it is unknown. */
const struct release *release_find(void);

static inline uint64_t get(const void *base, struct field field) {
  const char *address = (const char *)base + field.offset;
  if (field.bytes == 0) return 0;
  uint64_t value = field.bytes == 8 ? *(const uint64_t *)address
                 : field.bytes == 4 ? *(const uint32_t *)address
                 : field.bytes == 2 ? *(const uint16_t *)address
                                    : *(const uint8_t *)address;
  return field.width ? value >> field.shift & ((UINT64_C(1) << field.width) - 1) : value;
}

static inline int get_int(const void *base, struct field field) { return (int)get(base, field); }

static inline void *get_pointer(const void *base, struct field field) { return (void *)(uintptr_t)get(base, field); }

static inline void *address_of(const void *base, struct field field) { return (char *)(uintptr_t)base + field.offset; }

/* Element `index` of an array whose first element is the field. */
static inline struct field element(struct field field, int index) {
  field.offset = (uint16_t)(field.offset + index * field.bytes);
  return field;
}

#endif
