/*
 * The collectives on rings and trees. On a ring the ranks are numbered by their place after this rank. All ranks go
 * through the same chunks in an order in which what one sends is what the next one receives.
 */
#include "primitives.h"

#include <string.h>

/* A collective as one channel executes it. */
struct collective {
  struct block *block;
  const void *work;
  struct part part;
  const int *ring; /* ranks in the order of the ring, from this one on */
  int ranks;
};

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

static ptrdiff_t divide_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }

static const struct function *function_of(const struct collective *c) { return &c->block->batch.function; }

/* Whether a rank may access the registered buffers of its neighbours. */
static bool is_direct(const struct collective *c) {
  return function_of(c)->operation != REDUCE && function_of(c)->operation != REDUCE_SCATTER;
}

uint64_t argument_of(const struct block *block, const void *work) {
  const struct release *r = block->launch->release;
  const struct function *function = &block->batch.function;
  uint64_t argument = get(work, r->collective.argument), scalar = 0;
  if (function->operator == SUM || function->operator == PROD) return argument;
  if (!get_int(work, r->collective.argument_is_address)) return argument;
  size_t bytes = function->operator == SUM_POST_DIV ? sizeof scalar : type_bytes(function->type);
  memcpy(&scalar, (const void *)(uintptr_t)argument, bytes);
  return scalar;
}

static void open_primitives(struct collective *c, struct fiber *self, struct primitives *p, const int *from,
                            int from_max, const int *to, int to_max) {
  const struct release *r = c->block->launch->release;
  const struct function *function = function_of(c);
  bool halves = function->algorithm == RING && function->operation != BROADCAST && function->operation != REDUCE;
  struct primitives_options options = {
      .input = get_pointer(c->work, r->collective.send),
      .output = get_pointer(c->work, r->collective.receive),
      .argument = argument_of(c->block, c->work),
      .slices = halves ? 2 : 1,
      .steps = halves ? 2 : 1,
      .collective = is_direct(c) ? c->work : NULL,
  };
  primitives_open(p, c->block, self, function, from, from_max, to, to_max, &options);
}

static void open_ring(struct collective *c, struct fiber *self, struct primitives *p) {
  const struct release *r = c->block->launch->release;
  int previous = get_int(c->block->channel, r->channel.previous), next = get_int(c->block->channel, r->channel.next);
  open_primitives(c, self, p, &previous, 1, &next, 1);
}

static void transfer(const struct collective *c, struct primitives *p, struct transfer t) {
  t.direct_receive = t.receive && is_direct(c);
  t.direct_send = t.send && is_direct(c);
  primitives_run(p, &t);
}

/* ---- rings ---- */

/* Each rank reduces one chunk of a loop's, which has gone around the ring once, and then it goes around again. */
static void all_reduce_ring(struct collective *c, struct fiber *self) {
  const struct release *r = c->block->launch->release;
  int n = c->ranks, index = get_int(c->block->channel, r->channel.ring_index);
  ptrdiff_t chunk = c->part.chunk, loop = n * chunk;
  struct primitives p;
  open_ring(c, self, &p);
  for (ptrdiff_t done = 0; done < c->part.length; done += loop) {
    ptrdiff_t left = c->part.length - done, grain = 16 / (ptrdiff_t)p.element;
    if (left < loop) chunk = divide_up(divide_up(left, n), grain) * grain;
    for (int step = 0; step < 2 * n - 1; step++) {
      int which = (index + 2 * n - 1 - step) % n;
      ptrdiff_t offset = c->part.offset + done + which * chunk;
      transfer(c, &p,
               (struct transfer){.receive = step > 0,
                                 .send = step < 2 * n - 2,
                                 .from = step < n ? INPUT : NOWHERE,
                                 .to = step >= n - 1 ? OUTPUT : NOWHERE,
                                 .from_offset = offset,
                                 .to_offset = offset,
                                 .count = least(chunk, left - which * chunk),
                                 .finish = step == n - 1});
    }
  }
  primitives_close(&p);
}

static void all_gather_ring(struct collective *c, struct fiber *self) {
  int n = c->ranks;
  struct primitives p;
  open_ring(c, self, &p);
  for (ptrdiff_t done = 0; done < c->part.length; done += c->part.chunk) {
    ptrdiff_t count = least(c->part.chunk, c->part.length - done), mine = c->part.offset + done;
    for (int step = 0; step < n; step++) {
      ptrdiff_t offset = mine + c->ring[(n - step) % n] * c->part.count;
      bool in_place = p.input + mine * (ptrdiff_t)p.element == p.output + offset * (ptrdiff_t)p.element;
      transfer(c, &p,
               (struct transfer){.receive = step > 0,
                                 .send = step < n - 1,
                                 .from = step == 0 ? INPUT : NOWHERE,
                                 .to = step > 0 || !in_place ? OUTPUT : NOWHERE,
                                 .from_offset = step == 0 ? mine : offset,
                                 .to_offset = offset,
                                 .count = count});
    }
  }
  primitives_close(&p);
}

static void reduce_scatter_ring(struct collective *c, struct fiber *self) {
  int n = c->ranks;
  struct primitives p;
  open_ring(c, self, &p);
  for (ptrdiff_t done = 0; done < c->part.length; done += c->part.chunk) {
    ptrdiff_t count = least(c->part.chunk, c->part.length - done), mine = c->part.offset + done;
    for (int step = 0; step < n; step++) {
      bool last = step == n - 1;
      transfer(c, &p,
               (struct transfer){.receive = step > 0,
                                 .send = !last,
                                 .from = INPUT,
                                 .to = last ? OUTPUT : NOWHERE,
                                 .from_offset = mine + c->ring[n - 1 - step] * c->part.count,
                                 .to_offset = mine,
                                 .count = count,
                                 .finish = last});
    }
  }
  primitives_close(&p);
}

static void broadcast_ring(struct collective *c, struct fiber *self) {
  int root = get_int(c->work, c->block->launch->release->collective.root);
  bool first = c->ring[0] == root, last = c->ring[1 % c->ranks] == root;
  struct primitives p;
  open_ring(c, self, &p);
  for (ptrdiff_t done = 0; done < c->part.length; done += c->part.chunk) {
    ptrdiff_t offset = c->part.offset + done;
    transfer(c, &p,
             (struct transfer){.receive = !first,
                               .send = first || !last,
                               .from = first ? INPUT : NOWHERE,
                               .to = first && p.input == p.output ? NOWHERE : OUTPUT,
                               .from_offset = offset,
                               .to_offset = offset,
                               .count = least(c->part.chunk, c->part.length - done)});
  }
  primitives_close(&p);
}

static void reduce_ring(struct collective *c, struct fiber *self) {
  int root = get_int(c->work, c->block->launch->release->collective.root);
  bool first = c->ring[c->ranks - 1] == root, last = c->ring[0] == root;
  struct primitives p;
  open_ring(c, self, &p);
  for (ptrdiff_t done = 0; done < c->part.length; done += c->part.chunk) {
    ptrdiff_t offset = c->part.offset + done;
    transfer(c, &p,
             (struct transfer){.receive = !first,
                               .send = first || !last,
                               .from = INPUT,
                               .to = !first && last ? OUTPUT : NOWHERE,
                               .from_offset = offset,
                               .to_offset = offset,
                               .count = least(c->part.chunk, c->part.length - done),
                               .finish = !first && last});
  }
  primitives_close(&p);
}

/* ---- trees ---- */

struct tree {
  int up, down[TREE_CHILDREN];
};

static struct tree tree_of(const struct collective *c) {
  const struct release *r = c->block->launch->release;
  struct tree tree = {.up = get_int(c->block->channel, r->channel.tree_up)};
  for (int i = 0; i < TREE_CHILDREN; i++) tree.down[i] = get_int(c->block->channel, element(r->channel.tree_down, i));
  return tree;
}

/* Runs the same transfer for each chunk of the part, at the offset of the chunk. */
static void transfer_chunks(const struct collective *c, struct primitives *p, struct transfer t) {
  for (ptrdiff_t done = 0; done < c->part.length; done += c->part.chunk) {
    t.from_offset = t.to_offset = c->part.offset + done;
    t.count = least(c->part.chunk, c->part.length - done);
    transfer(c, p, t);
  }
}

static void send_down_tree(struct fiber *self, void *collective) {
  struct collective *c = collective;
  struct tree tree = tree_of(c);
  struct primitives p;
  open_primitives(c, self, &p, &tree.up, 1, tree.down, TREE_CHILDREN);
  transfer_chunks(c, &p, (struct transfer){.receive = true, .send = tree.down[0] != -1, .to = OUTPUT});
  primitives_close(&p);
}

/* A GPU's block has two groups of threads for the two directions; here the second is a fiber. */
static void all_reduce_tree(struct collective *c, struct fiber *self) {
  struct tree tree = tree_of(c);
  struct primitives p;
  if (tree.up == -1) {
    int top = TREE_CHILDREN - 1; /* a root has one child less */
    open_primitives(c, self, &p, tree.down, top, tree.down, top);
    transfer_chunks(c, &p,
                    (struct transfer){.receive = true, .send = true, .from = INPUT, .to = OUTPUT, .finish = true});
    primitives_close(&p);
    return;
  }
  struct fiber *down = fibers_add(c->block->launch->fibers, send_down_tree, c);
  open_primitives(c, self, &p, tree.down, TREE_CHILDREN, &tree.up, 1);
  transfer_chunks(c, &p, (struct transfer){.receive = tree.down[0] != -1, .send = true, .from = INPUT});
  primitives_close(&p);
  fiber_join(self, down);
}

void collectives_run(struct block *block, struct fiber *self) {
  const struct release *r = block->launch->release;
  for (int i = 0; i < block->batch.count; i++) {
    struct collective c = {
        .block = block,
        .work = batch_work(&block->batch, i),
        .part = part_of(block, batch_work(&block->batch, i)),
        .ring = get_pointer(block->channel, r->channel.ring),
        .ranks = block->launch->ranks,
    };
    if (block->batch.function.algorithm == PAT) {
      pat_run(block, self, c.work);
      continue;
    }
    switch (block->batch.function.operation) {
      case ALL_REDUCE:
        if (block->batch.function.algorithm == TREE) all_reduce_tree(&c, self);
        else all_reduce_ring(&c, self);
        break;
      case ALL_GATHER: all_gather_ring(&c, self); break;
      case REDUCE_SCATTER: reduce_scatter_ring(&c, self); break;
      case BROADCAST: broadcast_ring(&c, self); break;
      default: reduce_ring(&c, self); break;
    }
  }
}
