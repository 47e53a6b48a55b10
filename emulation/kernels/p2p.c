/* Point-to-point work: sends and receives. Also the broadcasts of a group, which together gather blocks of any size. */
#include "primitives.h"

#include <string.h>

#define P2P_CONNECTION 1
#define MAX_WORKS 16 /* of p2p that a block executes at once */
#define LARGE_CHUNK (INT64_C(1) << 30) /* with registered buffers between GPUs on NVLink only */

/* ---- sends and receives ---- */

/* The send or the receive of a work, as one channel executes it. */
struct half {
  struct block *block;
  const void *work;
  bool send;
  size_t begin, end; /* the channel's bytes */
};

static void run_half(struct fiber *self, void *argument) {
  const struct half *h = argument;
  const struct release *r = h->block->launch->release;
  const char *communicator = h->block->launch->communicator;
  bool registered = get_int(h->work, h->send ? r->p2p.send_registered : r->p2p.receive_registered) != 0;
  bool large = registered && get_int(communicator, r->communicator.all_nvlink) != 0;
  int peer = get_int(h->work, h->send ? r->p2p.send_rank : r->p2p.receive_rank);
  struct function function = h->block->batch.function;
  function.protocol = get_int(h->work, h->send ? r->p2p.send_ll : r->p2p.receive_ll) ? LL : SIMPLE;
  char *address = get_pointer(h->work, h->send ? r->p2p.send : r->p2p.receive);
  struct primitives_options options = {
      .input = h->send ? address + h->begin : NULL,
      .output = h->send ? NULL : address + h->begin,
      .slices = 1,
      .steps = 1,
      .connection = P2P_CONNECTION,
      .p2p = h->work,
      .step_bytes = large ? LARGE_CHUNK : get(communicator, r->communicator.p2p_chunk),
  };
  struct primitives p;
  primitives_open(&p, h->block, self, &function, &peer, h->send ? 0 : 1, &peer, h->send ? 1 : 0, &options);
  ptrdiff_t bytes = (ptrdiff_t)(h->end - h->begin), done = 0;
  ptrdiff_t chunk = large ? LARGE_CHUNK : (ptrdiff_t)p2p_chunk(h->block, h->work, h->send);
  do { /* one of no bytes takes a step, too */
    ptrdiff_t count = chunk < bytes - done ? chunk : bytes - done;
    primitives_run(&p, &(struct transfer){.receive = !h->send,
                                          .send = h->send,
                                          .from = h->send ? INPUT : NOWHERE,
                                          .to = h->send ? NOWHERE : OUTPUT,
                                          .from_offset = done,
                                          .to_offset = done,
                                          .count = count,
                                          .direct_receive = !h->send,
                                          .direct_send = h->send});
    done += count;
  } while (done < bytes);
  primitives_close(&p);
}

static void copy_to_self(const struct half *h, struct fiber *self) {
  const struct release *r = h->block->launch->release;
  struct primitives p = {
      .block = h->block,
      .self = self,
      .element = 1,
      .input = get_pointer(h->work, r->p2p.send),
      .output = get_pointer(h->work, r->p2p.receive),
  };
  ptrdiff_t count = (ptrdiff_t)(h->end - h->begin);
  char *from = operand(&p, INPUT, (ptrdiff_t)h->begin, count), *to = operand(&p, OUTPUT, (ptrdiff_t)h->begin, count);
  if (count > 0 && from != to) memmove(to, from, (size_t)count);
}

/* On a GPU each send and receive has warps of its own, here each has a fiber. */
void p2p_run(struct block *block, struct fiber *self) {
  const struct release *r = block->launch->release;
  struct half halves[2 * MAX_WORKS];
  struct fiber *fibers[2 * MAX_WORKS];
  int count = 0;
  if (block->batch.count > MAX_WORKS) launch_refuse(block->launch, "it has too many sends and receives at once");
  for (int i = 0; i < block->batch.count; i++) {
    const void *work = batch_work(&block->batch, i);
    bool to_self = get_int(work, r->p2p.send_rank) == block->launch->rank;
    for (int send = 1; send >= 0; send--) {
      struct half *h = &halves[count];
      *h = (struct half){.block = block, .work = work, .send = send != 0};
      if (!p2p_part(block, work, h->send, &h->begin, &h->end)) continue;
      if (!to_self) fibers[count++] = fibers_add(block->launch->fibers, run_half, h);
      else if (h->send) copy_to_self(h, self);
    }
  }
  for (int i = 0; i < count; i++) fiber_join(self, fibers[i]);
}

/* ---- broadcasts of a group ---- */

/* Takes a chunk of each broadcast in turn, until all are done. The work's own counters are those of the loop. */
void broadcasts_run(struct block *block, struct fiber *self) {
  const struct release *r = block->launch->release;
  int previous = get_int(block->channel, r->channel.previous), next = get_int(block->channel, r->channel.next);
  struct primitives p;
  primitives_open(&p, block, self, &block->batch.function, &previous, 1, &next, 1,
                  &(struct primitives_options){.slices = 1, .steps = 1});
  for (bool left = true; left;) {
    left = false;
    for (int i = 0; i < block->batch.count; i++) {
      const void *work = batch_work(&block->batch, i);
      uint64_t *bytes = address_of(work, r->broadcast.bytes), *done = address_of(work, r->broadcast.done);
      uint64_t chunk = get(work, r->broadcast.chunk), count = chunk < *bytes ? chunk : *bytes;
      if (count == 0) continue;
      int depth = get_int(work, r->broadcast.depth); /* this rank's distance from the root */
      p.input = get_pointer(work, r->broadcast.send);
      p.output = get_pointer(work, r->broadcast.receive);
      bool root = depth == 0, last = depth == block->launch->ranks - 1;
      primitives_run(&p, &(struct transfer){.receive = !root,
                                            .send = root || !last,
                                            .from = root ? INPUT : NOWHERE,
                                            .to = root && p.input == p.output ? NOWHERE : OUTPUT,
                                            .from_offset = (ptrdiff_t)*done,
                                            .to_offset = (ptrdiff_t)*done,
                                            .count = (ptrdiff_t)count});
      *bytes -= count;
      *done += count;
      left = left || *bytes > 0;
    }
  }
  primitives_close(&p);
}
