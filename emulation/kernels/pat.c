/*
 * The algorithm PAT ("parallel aggregated trees") of all-gather and reduce-scatter, for one rank per host. The ranks
 * that are at distances 1 to n - 1 from a rank form a binomial tree with the rank as its root: the parent of a distance
 * is the distance without its lowest bit. In an all-gather each rank's block goes down its tree, in a reduce-scatter
 * the sums move up. All ranks do the same with all trees at once, so a connection is used by distances with one lowest
 * bit ("dimension").
 *
 * Several trees are aggregated. A distance is then a multiple of `stride`, for one of `trees`, plus a part below it. As
 * many pieces of these as `pieces` says share a step of a connection.
 */
#include "primitives.h"

#define DIMENSIONS 32
#define NONE (-1)

/* A piece that is received from a peer, or read on this rank, and sent to a peer. */
struct piece {
  int receive, send;            /* dimensions, or NONE */
  int receive_slot, send_slot;  /* the place in the step, in pieces */
  int ahead;                    /* steps of the connection that are not posted yet */
  bool post_receive, post_send; /* the last piece of its step */
  int block;                    /* the rank to which the data belongs */
};

struct pat {
  struct primitives p;
  int rank, ranks, trees, stride, pieces;
  ptrdiff_t count /* of a block */, offset, length; /* of the chunk */
  struct link receives[DIMENSIONS], sends[DIMENSIONS];
  /* Up to where this rank's output, and each connection's buffer, has data. */
  ptrdiff_t local_end, receive_ends[DIMENSIONS], send_ends[DIMENSIONS];
};

static int lowest_bit(int distance) { return __builtin_ctz((unsigned)distance); }

/* The bits of a number below a power of 2 in reverse order, inverted. */
static int reversed_inverse(int number, int power) {
  int result = 0;
  for (int bit = 1; bit < power; bit *= 2) result = 2 * result + ((number & bit) == 0);
  return result;
}

/* Whether, of a number below a power of 2, only upper bits are set. */
static bool begins_peer(int number, int power) {
  int rest = (number ^ (power - 1)) + 1;
  return (rest & (rest - 1)) == 0;
}

/* Returns the rank at a distance. */
static int rank_at(const struct pat *t, int distance) { return (t->rank + distance) % t->ranks; }

static bool ends_step(const struct pat *t, int index) { return index % t->pieces == t->pieces - 1; }

static ptrdiff_t end_of(const struct pat *t, const struct link *link, int slot, int ahead) {
  ptrdiff_t step_elements = (ptrdiff_t)(link->step_bytes / t->p.element);
  return (slot + 1) * t->length + (ptrdiff_t)(link->step + (uint64_t)ahead) * step_elements;
}

static char *place_in(const struct pat *t, const struct link *link, int slot, int ahead) {
  return link->buffer + (link->step + (uint64_t)ahead) % STEPS * link->step_bytes +
         (size_t)(slot * t->length) * t->p.element;
}

static void post(struct link *link) {
  link->step++;
  link_post(link);
}

/* Posts what the piece ends. The proxy gets the size of the slot before it is posted. */
static void post_piece(struct pat *t, const struct piece *piece) {
  if (piece->send != NONE && piece->post_send) {
    link_size(&t->p, &t->sends[piece->send], (size_t)((piece->send_slot + 1) * t->length) * t->p.element);
    post(&t->sends[piece->send]);
  }
  if (piece->receive != NONE && piece->post_receive) post(&t->receives[piece->receive]);
}

/* Whether data up to `end` is new; if so, there is data up to there now. */
static bool is_new(ptrdiff_t *known_end, ptrdiff_t end) {
  bool new = *known_end < end;
  if (new) *known_end = end;
  return new;
}

/* Adds what arrives, if anything, to what is at the destination, or to this rank's input if there is nothing yet. */
static void reduce_piece(struct pat *t, const struct piece *piece) {
  char *sources[2], *destination;
  int source_count = 0;
  bool new;
  if (piece->receive != NONE) {
    link_wait(&t->p, &t->receives[piece->receive], 1);
    sources[source_count++] = place_in(t, &t->receives[piece->receive], piece->receive_slot, 0);
  }
  if (piece->send != NONE) {
    struct link *link = &t->sends[piece->send];
    link_wait(&t->p, link, piece->ahead + 1);
    destination = place_in(t, link, piece->send_slot, piece->ahead);
    new = is_new(&t->send_ends[piece->send], end_of(t, link, piece->send_slot, piece->ahead));
  } else {
    destination = operand(&t->p, OUTPUT, t->offset, t->length);
    new = is_new(&t->local_end, t->offset + t->length);
  }
  sources[source_count++] = new ? operand(&t->p, INPUT, piece->block * t->count + t->offset, t->length) : destination;
  combine(&t->p, sources, source_count, &destination, 1, t->length, false, false);
  post_piece(t, piece);
}

/* Sends on what arrives, or this rank's input, and copies it to the output the first time. */
static void copy_piece(struct pat *t, const struct piece *piece) {
  char *source, *destinations[2];
  int destination_count = 0;
  bool new;
  if (piece->receive != NONE) {
    struct link *link = &t->receives[piece->receive];
    link_wait(&t->p, link, piece->ahead + 1);
    source = place_in(t, link, piece->receive_slot, piece->ahead);
    new = is_new(&t->receive_ends[piece->receive], end_of(t, link, piece->receive_slot, piece->ahead));
  } else {
    source = operand(&t->p, INPUT, t->offset, t->length);
    new = is_new(&t->local_end, t->offset + t->length);
  }
  if (piece->send != NONE) {
    link_wait(&t->p, &t->sends[piece->send], 1);
    destinations[destination_count++] = place_in(t, &t->sends[piece->send], piece->send_slot, 0);
  }
  if (new) destinations[destination_count++] = operand(&t->p, OUTPUT, piece->block * t->count + t->offset, t->length);
  combine(&t->p, &source, 1, destinations, destination_count, t->length, false, false);
  post_piece(t, piece);
}

/* ---- reduce-scatter: from the leaves to the roots ---- */

/* Leaves only send. */
static void send_leaves(struct pat *t, int part) {
  for (int i = 0; i < t->trees; i++) {
    int distance = reversed_inverse(i, t->trees) * t->stride + part;
    if (distance >= t->ranks) continue;
    struct piece piece = {.receive = NONE,
                          .send = 0,
                          .send_slot = i % t->pieces,
                          .post_send = ends_step(t, i) || i == t->trees - 1,
                          .block = rank_at(t, distance)};
    reduce_piece(t, &piece);
  }
}

/* Others receive from a child, and send to their parent after the last one. */
static void join_children(struct pat *t, int part) {
  int dimension = lowest_bit(part), first = 0, ahead = 0;
  for (int i = 0; i < t->trees; i++) {
    int child = reversed_inverse(i, t->trees) * t->stride + part, distance = child - (1 << dimension);
    bool to_trees = distance > 0 && part == 1 << dimension; /* the parents are those of whole trees */
    if (to_trees && begins_peer(i, t->trees)) first = i, ahead = 0;
    bool ends = ends_step(t, i) || i == t->trees - 1, exists = child < t->ranks;
    struct piece piece = {.receive = exists ? dimension : NONE,
                          .send = distance > 0 ? lowest_bit(distance) : NONE,
                          .receive_slot = i % t->pieces,
                          .send_slot = (to_trees ? i - first : i) % t->pieces,
                          .ahead = ahead,
                          .post_receive = ends,
                          .post_send = dimension == 0 && ends};
    if (distance >= t->ranks) continue;
    piece.block = rank_at(t, distance);
    if (dimension > 0 && ends_step(t, i - first)) ahead++;
    reduce_piece(t, &piece);
  }
}

/* The roots of the aggregated trees with this bit, of half as many trees for each larger bit, receive the last piece
 * ... */
static void end_trees(struct pat *t, int bit) {
  int trees = t->trees / (2 * bit);
  for (int i = 0; i < trees; i++) {
    int distance = (2 * reversed_inverse(i, trees) + 1) * bit * t->stride, received = i + t->trees - t->trees / bit;
    if (distance >= t->ranks) continue;
    struct piece piece = {.receive = distance + 1 < t->ranks ? 0 : NONE,
                          .send = lowest_bit(distance),
                          .receive_slot = received % t->pieces,
                          .send_slot = i % t->pieces,
                          .post_receive = ends_step(t, received),
                          .post_send = ends_step(t, i) || i == trees - 1,
                          .block = rank_at(t, distance)};
    reduce_piece(t, &piece);
  }
}

/* ... and send to a root without the bit. */
static void join_trees(struct pat *t, int bit) {
  int trees = t->trees / (2 * bit), first = 0, ahead = 0;
  for (int i = 0; i < trees; i++) {
    int child = (2 * reversed_inverse(i, trees) + 1) * bit * t->stride, dimension = lowest_bit(child);
    int distance = child - (1 << dimension);
    bool exists = child < t->ranks;
    if (begins_peer(i, trees)) first = i, ahead = 0;
    struct piece piece = {.receive = exists ? dimension : NONE,
                          .send = distance > 0 ? lowest_bit(distance) : NONE,
                          .receive_slot = i % t->pieces,
                          .send_slot = (i - first) % t->pieces,
                          .ahead = ahead,
                          .post_receive = ends_step(t, i) || i == trees - 1};
    if (distance >= t->ranks) continue;
    piece.block = rank_at(t, distance);
    if (ends_step(t, i - first)) ahead++;
    reduce_piece(t, &piece);
  }
}

static void reduce_scatter_chunk(struct pat *t) {
  for (int part = t->stride - 1; part > 0; part--) {
    if (part % 2 == 1) send_leaves(t, part);
    if (part > 1) join_children(t, part);
  }
  for (int bit = 1; bit < t->trees; bit *= 2) {
    end_trees(t, bit);
    join_trees(t, bit);
  }
  struct piece last = {
      .receive = 0, .send = NONE, .receive_slot = (t->trees - 1) % t->pieces, .post_receive = true, .block = t->rank};
  reduce_piece(t, &last);
}

/* ---- all-gather: from the roots to the leaves ---- */

/* The roots of the aggregated trees get their data, those with the largest bit first. */
static void begin_trees(struct pat *t, int bit) {
  for (int i = 0; i < t->trees / (2 * bit); i++) {
    int child = (2 * i + 1) * bit * t->stride, dimension = lowest_bit(child), distance = child - (1 << dimension);
    if (child >= t->ranks) continue;
    struct piece piece = {.receive = NONE,
                          .send = dimension,
                          .send_slot = i % t->pieces,
                          .ahead = i / t->pieces,
                          .post_send = ends_step(t, i) || (2 * (i + 1) + 1) * bit * t->stride >= t->ranks,
                          .block = rank_at(t, distance)};
    if (distance > 0) {
      piece.receive = lowest_bit(distance);
      int received = (i * 2 * bit * t->stride) >> (piece.receive + 1);
      piece.receive_slot = received % t->pieces;
      piece.ahead = received / t->pieces;
    }
    copy_piece(t, &piece);
  }
}

/* Each one that has data sends it to a child. */
static void send_to_children(struct pat *t, int part) {
  int dimension = lowest_bit(part);
  for (int i = 0; i < t->trees; i++) {
    int child = i * t->stride + part, distance = child - (1 << dimension);
    bool exists = child < t->ranks;
    /* A child that does not exist gets nothing, but its parent receives its own data now. */
    if (!exists && (dimension > 0 || distance >= t->ranks)) continue;
    struct piece piece = {.receive = distance > 0 ? lowest_bit(distance) : NONE,
                          .send = exists ? dimension : NONE,
                          .receive_slot = i % t->pieces,
                          .send_slot = i % t->pieces,
                          .ahead = dimension == 0 ? 0 : i / t->pieces,
                          .post_receive =
                              dimension == 0 && (ends_step(t, i) || (i + 1) * t->stride + part - 1 >= t->ranks),
                          .post_send = ends_step(t, i) || (i + 1) * t->stride + part >= t->ranks,
                          .block = rank_at(t, distance)};
    if (piece.receive != NONE && part == 1 << dimension) { /* from a tree's root */
      int received = (i * t->stride) >> (piece.receive + 1);
      piece.receive_slot = received % t->pieces;
      piece.ahead = dimension == 0 ? 0 : received / t->pieces;
      piece.post_receive =
          dimension == 0 && (ends_step(t, received) || (2 * (received + 1) + 1) << piece.receive >= t->ranks);
    }
    copy_piece(t, &piece);
  }
}

/* Leaves only receive. */
static void receive_leaves(struct pat *t, int part) {
  for (int i = 0; i < t->trees; i++) {
    int distance = i * t->stride + part;
    if (distance >= t->ranks) continue;
    struct piece piece = {.receive = 0,
                          .send = NONE,
                          .receive_slot = i % t->pieces,
                          .post_receive = ends_step(t, i) || (i + 1) * t->stride + part >= t->ranks,
                          .block = rank_at(t, distance)};
    copy_piece(t, &piece);
  }
}

/* Goes down the binomial tree below a part, the largest subtree first. */
static void go_down(struct pat *t, int part, int below) {
  for (int bit = below / 2; bit > 0; bit /= 2) {
    send_to_children(t, part + bit);
    if (bit == 1) receive_leaves(t, part + bit);
    go_down(t, part + bit, bit);
  }
}

static void all_gather_chunk(struct pat *t) {
  for (int bit = t->trees / 2; bit > 0; bit /= 2) begin_trees(t, bit);
  go_down(t, 0, t->stride);
}

/* ---- */

/* Aggregates trees as long as their pieces of the part fit in a step together, and then as many as there are steps. */
static void aggregate(struct pat *t, const struct part *part) {
  t->trees = t->pieces = t->stride = 1;
  while (t->stride < t->ranks) t->stride *= 2;
  for (int steps = STEPS; t->trees < t->ranks / 2; t->trees *= 2, t->stride /= 2) {
    bool fits = part->chunk / (part->length * t->trees) >= 2;
    if (fits && t->pieces == t->trees) t->pieces *= 2;
    else if (steps > 1) steps /= 2;
    else break;
  }
}

void pat_run(struct block *block, struct fiber *self, const void *work) {
  const struct release *r = block->launch->release;
  bool gathers = block->batch.function.operation == ALL_GATHER;
  struct part part = part_of(block, work);
  if (part.length == 0) return;
  struct pat t = {.rank = block->launch->rank, .ranks = block->launch->ranks, .count = part.count};
  struct primitives_options options = {
      .input = get_pointer(work, r->collective.send),
      .output = get_pointer(work, r->collective.receive),
      .argument = argument_of(block, work),
      .slices = 1,
      .steps = 1,
  };
  aggregate(&t, &part);
  primitives_open(&t.p, block, self, &block->batch.function, NULL, 0, NULL, 0, &options);
  for (int dimension = 0; 1 << dimension < t.ranks; dimension++) {
    int up = rank_at(&t, 1 << dimension), down = rank_at(&t, t.ranks - (1 << dimension));
    link_open(&t.p, &t.receives[dimension], gathers ? up : down, false, 0);
    link_open(&t.p, &t.sends[dimension], gathers ? down : up, true, 0);
  }
  for (ptrdiff_t done = 0; done < part.length; done += part.chunk) {
    t.offset = part.offset + done;
    t.length = part.length - done < part.chunk ? part.length - done : part.chunk;
    if (gathers) all_gather_chunk(&t);
    else reduce_scatter_chunk(&t);
  }
  for (int dimension = 0; 1 << dimension < t.ranks; dimension++) {
    link_close(&t.p, &t.receives[dimension]);
    link_close(&t.p, &t.sends[dimension]);
  }
}
