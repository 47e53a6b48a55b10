/* What a block has to do: its batches, the works of a batch, and the channel's part of a work. */
#include "launch.h"

#include <stdlib.h>
#include <string.h>

#define PACK_BYTES 16 /* works are stored in packs, each of which may be at the start of the queue again */
#define STORED_IN_ARGUMENTS 0
#define P2P_GRAIN 4096

static size_t work_bytes(const struct release *release, enum work_type type) {
  switch (type) {
    case WORK_P2P: return release->p2p_bytes;
    case WORK_COLLECTIVE: return release->collective_bytes;
    case WORK_REGISTERED: return release->registered_bytes;
    default: return release->broadcast_bytes;
  }
}

static void copy_work(const struct launch *launch, char *to, uint32_t offset, size_t bytes) {
  const struct release *r = launch->release;
  if (get_int(launch->arguments, r->arguments.storage) == STORED_IN_ARGUMENTS) {
    if (offset + bytes > launch->bytes) launch_refuse(launch, "its works are outside its arguments");
    memcpy(to, launch->arguments + offset, bytes);
    return;
  }
  const char *works = get_pointer(launch->arguments, r->arguments.works);
  uint32_t mask = (uint32_t)get(launch->arguments, r->arguments.mask);
  for (size_t pack = 0; pack < bytes; pack += PACK_BYTES)
    memcpy(to + pack, works + ((offset + pack) & mask), PACK_BYTES);
}

static char *grow(struct batch *batch) {
  size_t used = (size_t)batch->count * batch->work_bytes;
  if (used + batch->work_bytes > batch->capacity) {
    batch->capacity = 2 * batch->capacity + batch->work_bytes;
    batch->works = realloc(batch->works, batch->capacity);
  }
  batch->count++;
  return batch->works + used;
}

void batch_load(struct block *block, int index) {
  const struct launch *launch = block->launch;
  const struct release *r = launch->release;
  struct batch *batch = &block->batch;
  batch->count = 0;
  for (;;) {
    size_t place = r->arguments_bytes + (size_t)index * r->batch_bytes;
    if (place + r->batch_bytes > launch->bytes) launch_refuse(launch, "its batches are outside its arguments");
    const char *header = launch->arguments + place;
    batch->type = (enum work_type)get_int(header, r->batch.type);
    batch->work_bytes = work_bytes(r, batch->type);
    if (batch->work_bytes == 0) launch_refuse(launch, "it has works that the known release lacks");
    uint64_t set = get(header, r->batch.set);
    for (uint32_t bit = 0; bit < 64; bit++) {
      if ((set >> bit & 1) == 0) continue;
      uint32_t offset = (uint32_t)get(header, r->batch.offset) + bit * (uint32_t)batch->work_bytes;
      copy_work(launch, grow(batch), offset, batch->work_bytes);
    }
    int jump = get_int(header, r->batch.jump);
    bool extended = get_int(header, r->batch.extends) != 0;
    if (!extended) {
      if (!function_find(get_int(header, r->batch.function), r->broadcast_bytes != 0, &batch->function))
        launch_refuse(launch, "it has a function of an unknown number");
      batch->next = jump == 0 ? -1 : index + jump;
      return;
    }
    index += jump;
  }
}

const void *batch_work(const struct batch *batch, int index) {
  return batch->works + (size_t)index * batch->work_bytes;
}

/* The bytes of which a chunk of the protocol is a multiple. */
static size_t grain_bytes(enum protocol protocol) {
  switch (protocol) {
    case LL: return 16;
    case LL128: return 1920;
    default: return 512;
  }
}

struct part part_of(const struct block *block, const void *work) {
  const struct release *r = block->launch->release;
  const struct function *function = &block->batch.function;
  ptrdiff_t counts[3];
  for (int i = 0; i < 3; i++) counts[i] = (ptrdiff_t)get(work, r->collective.count[i]);
  int first = get_int(work, r->collective.first), last = get_int(work, r->collective.last);
  int middle = last - first - 1; /* -1 for one channel, whose count is the first one and the others are 0 */
  struct part part = {.count = counts[0] + middle * counts[1] + counts[2]};
  int which = block->channel_number == first ? 0 : block->channel_number == last ? 2 : 1;
  if (which == 1) part.offset = counts[0] + (block->channel_number - first - 1) * counts[1];
  if (which == 2) part.offset = counts[0] + middle * counts[1];
  part.length = counts[which];
  size_t grain = grain_bytes(function->protocol) / type_bytes(function->type);
  part.chunk = (ptrdiff_t)(get(work, r->collective.grains[which]) * grain);
  return part;
}

bool p2p_part(const struct block *block, const void *work, bool send, size_t *begin, size_t *end) {
  const struct release *r = block->launch->release;
  int channels = get_int(work, r->p2p.channels); /* a power of 2 */
  int part = (block->channel_number - get_int(work, r->p2p.base)) & (channels - 1);
  int parts = get_int(work, send ? r->p2p.send_channels : r->p2p.receive_channels);
  if (part >= parts) return false;
  size_t bytes = get(work, send ? r->p2p.send_bytes : r->p2p.receive_bytes);
  size_t share =
      (bytes / (size_t)parts + (bytes % (size_t)parts != 0) + P2P_GRAIN - 1) & ~(size_t)(P2P_GRAIN - 1);
  *begin = (size_t)part * share < bytes ? (size_t)part * share : bytes;
  *end = (size_t)(part + 1) * share < bytes ? (size_t)(part + 1) * share : bytes;
  return true;
}

/* The chunk size is a small float: three bits after a leading one, except for numbers below 8. */
size_t p2p_chunk(const struct block *block, const void *work, bool send) {
  const struct release *r = block->launch->release;
  uint32_t code = (uint32_t)get(work, send ? r->p2p.send_chunk : r->p2p.receive_chunk);
  uint32_t exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? mantissa : (size_t)(mantissa | 8) << (exponent - 1);
}
