/*
 * Kernels for symmetric memory. Every rank has mapped the windows of all ranks of its host, one after the other, so
 * blocks read and write the operands of other ranks themselves (ST, LD). They wait for each other by barriers, or by
 * the flags of lines of 8 bytes of data that they send to each other (LL, low latency). Sums are accumulated in
 * float32, those of float8 that are averaged in float16, and rounded to the type once.
 */
#include "symmetric.h"

#include "cudart/cudart.h"
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE_UNIT 32   /* strides of windows are in units of 2 to this power bytes */
#define HANDLE_BYTES 128 /* offsets in the communicator's own window are in units of this */
#define CELL_BYTES 1024  /* works are divided between blocks at multiples of this */
#define LINE_WORDS 2     /* a line has two words with 32 bits of data and a flag each */
#define LINE_DATA 8
#define LINES_AT_ONCE 512
#define CHUNK_ELEMENTS 2048 /* that are reduced at once */
#define MAX_LOCAL_RANKS 72

/* The algorithms, named as in NCCL's kernels. */
enum symmetric_algorithm {
  ALL_REDUCE_AGXLL_R,
  ALL_REDUCE_RSXLD_AGXST,
  ALL_GATHER_LL,
  ALL_GATHER_ST,
  REDUCE_SCATTER_LL,
  REDUCE_SCATTER_LD
};

struct symmetric_block {
  struct symmetric *launch;
  int index;
};

struct symmetric {
  const struct release *release;
  const char *name, *arguments;
  size_t bytes;
  enum symmetric_algorithm algorithm;
  ncclDataType_t type, accumulator;
  bool average;
  uint64_t argument;
  int rank, ranks, device;
  struct fibers *fibers;
  bool failed;
  alignas(16) char values[CHUNK_ELEMENTS * sizeof(float)];
  alignas(16) char others[CHUNK_ELEMENTS * sizeof(float)];
  int block_count;
  struct symmetric_block blocks[];
};

/* The elements of a work that a block executes, alone or with other blocks. */
struct share {
  const char *work;
  size_t begin, count, all; /* all: the elements of the work */
  int block, blocks;
};

static _Noreturn void refuse(const char *name, const char *reason) {
  not_emulated("the kernel %s (%s)", name, reason);
}

/* ---- names ---- */

static const char prefix[] = "ncclSymkDevKernel_";

bool symmetric_is(const char *name) { return strstr(name, prefix) != NULL; }

static bool begins_with(const char **text, const char *beginning) {
  size_t length = strlen(beginning);
  if (strncmp(*text, beginning, length) != 0) return false;
  *text += length;
  return true;
}

/* The name of a C++ function, in which operation, algorithm, operator and type follow the prefix. */
static void parse_name(struct symmetric *launch) {
  static const char *const algorithms[] = {"AllReduce_AGxLL_R_", "AllReduce_RSxLD_AGxST_", "AllGather_LL",
                                           "AllGather_ST",       "ReduceScatter_LL_",      "ReduceScatter_LD_"};
  static const struct {
    const char *name;
    ncclDataType_t type;
  } types[] = {{"f32", ncclFloat32},
               {"f16", ncclFloat16},
               {"bf16", ncclBfloat16},
               {"f8e4m3", ncclFloat8e4m3},
               {"f8e5m2", ncclFloat8e5m2}};
  const char *rest = strstr(launch->name, prefix) + sizeof prefix - 1;
  int algorithm = 0;
  while (algorithm < 6 && !begins_with(&rest, algorithms[algorithm])) algorithm++;
  if (algorithm == 6) refuse(launch->name, "its algorithm is unknown");
  launch->algorithm = (enum symmetric_algorithm)algorithm;
  if (algorithm == ALL_GATHER_LL || algorithm == ALL_GATHER_ST) {
    /* What follows is the length of the parameter's type, not another algorithm such as LLMC or STMC. */
    if (*rest < '0' || *rest > '9') refuse(launch->name, "its algorithm is unknown");
    launch->type = ncclInt8;
    return;
  }
  launch->average = begins_with(&rest, "avg_");
  if (!launch->average && !begins_with(&rest, "sum_")) refuse(launch->name, "its operator is unknown");
  int type = 0;
  while (type < 5 && !begins_with(&rest, types[type].name)) type++;
  if (type == 5) refuse(launch->name, "its type is unknown");
  launch->type = types[type].type;
  launch->accumulator = launch->average && type_bytes(launch->type) == 1 ? ncclFloat16 : ncclFloat32;
}

/* ---- memory of the ranks ---- */

static char *at_rank(char *base, uint32_t stride, int rank) { return base + ((uint64_t)rank * stride << STRIDE_UNIT); }

/* Returns a rank's part of the communicator's own window. */
static char *own_window(const struct symmetric *s, struct field handle, int rank) {
  const struct release *r = s->release;
  char *base = get_pointer(s->arguments, r->symmetric.base);
  char *window = at_rank(base, (uint32_t)get(s->arguments, r->symmetric.stride), rank);
  return window + get(s->arguments, handle) * HANDLE_BYTES;
}

/* Returns a rank's operand of a work. Without a window, it is this rank's and its offset is its address. */
static char *operand_of(const struct symmetric *s, const char *work, bool input, int rank) {
  const struct release *r = s->release;
  char *window = get_pointer(work, input ? r->symmetric_work.input_window : r->symmetric_work.output_window);
  uint64_t offset = get(work, input ? r->symmetric_work.input_offset : r->symmetric_work.output_offset);
  if (window == NULL) return (char *)(uintptr_t)offset;
  return at_rank(get_pointer(window, r->window.base), (uint32_t)get(window, r->window.stride), rank) + offset;
}

/* ---- works ---- */

static const char *range_of(const struct symmetric *s, int block) {
  return s->arguments + s->release->symmetric_bytes + (size_t)block * s->release->range_bytes;
}

static const char *work_at(const struct symmetric *s, int index) {
  const struct release *r = s->release;
  size_t ranges = (size_t)get(s->arguments, r->symmetric.blocks) * r->range_bytes;
  size_t place = r->symmetric_bytes + (ranges + 15) / 16 * 16 + (size_t)index * r->symmetric_work_bytes;
  if (place + r->symmetric_work_bytes > s->bytes) refuse(s->name, "its works are outside its arguments");
  return s->arguments + place;
}

/* Returns the element at a fraction of the work, in 65536th. */
static size_t element_at(const struct symmetric *s, const char *work, uint32_t fraction) {
  size_t cell = CELL_BYTES / type_bytes(s->type), count = get(work, s->release->symmetric_work.count);
  size_t place = (fraction * ((count + cell - 1) / cell) >> 16) * cell;
  return place < count ? place : count;
}

/* Stores the first work of the block and the fraction of it where the block begins. */
static void find_begin(const struct symmetric *s, int block, int *work, uint32_t *fraction) {
  *work = 0;
  *fraction = 0;
  if (block == 0) return;
  *work = get_int(range_of(s, block - 1), s->release->range.last);
  *fraction = (uint32_t)get(range_of(s, block - 1), s->release->range.fraction) + 1;
  if (*fraction == 0x10000) {
    ++*work;
    *fraction = 0;
  }
}

static struct share share_of(const struct symmetric *s, int block, int index) {
  const struct release *r = s->release;
  const char *work = work_at(s, index);
  struct share share = {.work = work, .all = get(work, r->symmetric_work.count), .blocks = 1};
  int first = get_int(work, r->symmetric_work.first_block), count = get_int(work, r->symmetric_work.block_count);
  bool together = block >= first && block < first + count;
  int from = together ? first : block, to = together ? first + count - 1 : block, begin_work;
  uint32_t begin;
  find_begin(s, from, &begin_work, &begin);
  const char *end = range_of(s, to);
  bool ends_here = get_int(end, r->range.last) == index;
  share.begin = begin_work == index ? element_at(s, work, begin) : 0;
  share.count = (ends_here ? element_at(s, work, (uint32_t)get(end, r->range.fraction) + 1) : share.all) - share.begin;
  if (together) {
    share.block = block - first;
    share.blocks = count;
  }
  return share;
}

/* ---- reductions ---- */

/* Reduces `count` elements of all ranks, this rank's first, and stores them at the destinations. */
static void reduce_chunk(struct symmetric *s, char *const *sources, int source_count, char *const *destinations,
                         int destination_count, size_t count) {
  ncclDataType_t accumulator = s->accumulator;
  arithmetic_convert(s->type, sources[0], accumulator, s->values, count);
  for (int i = 1; i < source_count; i++) {
    arithmetic_convert(s->type, sources[i], accumulator, s->others, count);
    arithmetic_reduce(SUM, accumulator, 0, s->values, s->others, count);
  }
  if (s->average) arithmetic_multiply(accumulator, s->argument, s->values, count);
  arithmetic_convert(accumulator, s->values, s->type, s->others, count);
  for (int i = 0; i < destination_count; i++) memcpy(destinations[i], s->others, count * type_bytes(s->type));
}

/* Reduces elements of the operands from a place in the share on; `to_all`: stores the result at every rank. */
static void reduce_elements(struct symmetric *s, const struct share *share, size_t input, size_t output, size_t count,
                            bool to_all) {
  size_t element = type_bytes(s->type);
  for (size_t done = 0; done < count; done += CHUNK_ELEMENTS) {
    size_t some = count - done < CHUNK_ELEMENTS ? count - done : CHUNK_ELEMENTS;
    char *sources[MAX_LOCAL_RANKS], *destinations[MAX_LOCAL_RANKS];
    for (int i = 0; i < s->ranks; i++) {
      int rank = (s->rank + i) % s->ranks;
      sources[i] = operand_of(s, share->work, true, rank) + (input + done) * element;
      destinations[i] = operand_of(s, share->work, false, rank) + (output + done) * element;
    }
    reduce_chunk(s, sources, s->ranks, destinations, to_all ? s->ranks : 1, some);
  }
}

/* Whether this block of this rank is the one for a unit of an all-reduce. */
static bool is_mine(const struct symmetric *s, const struct share *share, size_t unit) {
  return unit % (size_t)s->ranks == (size_t)s->rank &&
         unit / (size_t)s->ranks % (size_t)share->blocks == (size_t)share->block;
}

/* Divides the bytes from the cursor on into units of a warp, as many as all warps take; the ranks take them in turn. */
static size_t reduce_units(struct symmetric *s, const struct share *share, size_t cursor, size_t bytes, size_t unit) {
  size_t element = type_bytes(s->type), chunks = (bytes - cursor) / (4 * unit);
  chunks -= chunks % (size_t)(s->ranks * share->blocks);
  for (size_t i = 0; i < 4 * chunks; i++) {
    size_t place = share->begin + (cursor + i * unit) / element;
    if (is_mine(s, share, i)) reduce_elements(s, share, place, place, unit / element, true);
  }
  return cursor + chunks * 4 * unit;
}

/* Which rank reduces an element decides the order of its sum. */
static void all_reduce_share(struct symmetric *s, const struct share *share) {
  const struct release *r = s->release;
  size_t element = type_bytes(s->type), bytes = share->count * element;
  size_t input = get(share->work, r->symmetric_work.input_offset) + share->begin * element;
  size_t output = get(share->work, r->symmetric_work.output_offset) + share->begin * element;
  size_t before = (16 - input % 16) % 16, cursor;
  if (before > bytes) before = bytes;
  cursor = before;
  if (input % 16 == output % 16) cursor = reduce_units(s, share, cursor, bytes, 2048);
  if (element == 4 || input % 4 == output % 4) cursor = reduce_units(s, share, cursor, bytes, 512);
  size_t ends = (before + bytes - cursor) / element, first = before / element;
  for (size_t i = 0; i < ends; i++) {
    size_t place = share->begin + (i < first ? i : cursor / element + i - first);
    if (is_mine(s, share, i / 32)) reduce_elements(s, share, place, place, 1, true);
  }
}

/* ---- with barriers ---- */

struct inbox {
  const uint32_t *word;
  uint32_t epoch;
};

static bool has_arrived(void *state) {
  const struct inbox *inbox = state;
  return __atomic_load_n(inbox->word, __ATOMIC_ACQUIRE) - inbox->epoch <= UINT32_MAX >> 1;
}

/* Each rank has, after two times as many words as there are barriers and that number again, a word for each peer. */
static uint32_t *inbox_of(const struct symmetric *s, int index, int owner, int peer) {
  const struct release *r = s->release;
  uint32_t *state = (uint32_t *)own_window(s, r->symmetric.barrier, owner);
  return state + 3 * get(s->arguments, r->symmetric.barriers) + (size_t)(index * s->ranks + peer);
}

static void barrier(const struct symmetric *s, struct fiber *self, int index) {
  const struct release *r = s->release;
  uint32_t *state = (uint32_t *)own_window(s, r->symmetric.barrier, s->rank);
  uint32_t *epoch = state + get(s->arguments, r->symmetric.barriers) + (size_t)index;
  for (int peer = 0; peer < s->ranks; peer++)
    if (peer != s->rank) __atomic_store_n(inbox_of(s, index, peer, s->rank), *epoch + 1, __ATOMIC_RELEASE);
  for (int peer = 0; peer < s->ranks; peer++) {
    struct inbox inbox = {inbox_of(s, index, s->rank, peer), *epoch + 1};
    if (peer != s->rank) fiber_wait(self, has_arrived, &inbox);
  }
  ++*epoch;
}

static void gather_share(struct symmetric *s, const struct share *share) {
  size_t begin = share->count * (size_t)share->block / (size_t)share->blocks;
  size_t end = share->count * (size_t)(share->block + 1) / (size_t)share->blocks;
  const char *from = operand_of(s, share->work, true, s->rank) + share->begin + begin;
  for (int rank = 0; rank < s->ranks; rank++) {
    char *to = operand_of(s, share->work, false, rank) + share->begin + begin + (size_t)s->rank * share->all;
    if (to != from) memmove(to, from, end - begin);
  }
}

static void scatter_share(struct symmetric *s, const struct share *share) {
  size_t begin = share->begin + share->count * (size_t)share->block / (size_t)share->blocks;
  size_t end = share->begin + share->count * (size_t)(share->block + 1) / (size_t)share->blocks;
  reduce_elements(s, share, begin + (size_t)s->rank * share->all, begin, end - begin, false);
}

static void run_with_barriers(struct symmetric *s, struct fiber *self, int block) {
  int first, last = get_int(range_of(s, block), s->release->range.last);
  uint32_t fraction;
  find_begin(s, block, &first, &fraction);
  barrier(s, self, block);
  for (int i = first; i <= last; i++) {
    struct share share = share_of(s, block, i);
    if (s->algorithm == ALL_REDUCE_RSXLD_AGXST) all_reduce_share(s, &share);
    else if (s->algorithm == ALL_GATHER_ST) gather_share(s, &share);
    else scatter_share(s, &share);
  }
  barrier(s, self, block);
}

/* ---- with LL ---- */

/* A block's lines at each rank: one with the epoch, then two sets of slots that are used in turn. */
struct ll_session {
  struct fiber *self;
  const struct symmetric *launch;
  uint32_t epoch;
  size_t slots, place; /* place: of the epoch's set */
  size_t header;
};

struct line_state {
  const uint64_t *line;
  uint32_t epoch;
};

static uint64_t *line_at(const struct ll_session *session, int rank, size_t slot) {
  char *window = own_window(session->launch, session->launch->release->symmetric.lines, rank);
  return (uint64_t *)window + (session->place + slot) * LINE_WORDS;
}

static void choose_slots(struct ll_session *session) {
  session->place = session->header + 1 + (session->epoch & 1) * session->slots;
}

static uint32_t *stored_epoch(const struct ll_session *session) {
  char *window = own_window(session->launch, session->launch->release->symmetric.lines, session->launch->rank);
  return (uint32_t *)((uint64_t *)window + session->header * LINE_WORDS);
}

static struct ll_session open_session(const struct symmetric *s, struct fiber *self, int block) {
  struct ll_session session = {.self = self, .launch = s, .slots = get(s->arguments, s->release->symmetric.slots)};
  session.header = (size_t)block * (1 + 2 * session.slots);
  session.epoch = *stored_epoch(&session) + 2;
  choose_slots(&session);
  return session;
}

/* Ends the epoch. Its number is the flag of its lines, so that the sets are cleared before the numbers begin again. */
static void end_epoch(struct ll_session *session) {
  if (session->epoch >= UINT32_MAX - 1)
    memset(line_at(session, session->launch->rank, 0), 0, session->slots * LINE_WORDS * sizeof(uint64_t));
  session->epoch += session->epoch == UINT32_MAX ? 3 : 1;
  choose_slots(session);
}

static void send_line(const struct ll_session *session, int rank, size_t slot, const char *data, size_t bytes) {
  uint32_t words[LINE_WORDS] = {0};
  memcpy(words, data, bytes);
  uint64_t *line = line_at(session, rank, slot);
  for (int i = 0; i < LINE_WORDS; i++)
    __atomic_store_n(line + i, words[i] | (uint64_t)session->epoch << 32, __ATOMIC_RELEASE);
}

static bool line_is_there(void *state) {
  const struct line_state *waiting = state;
  for (int i = 0; i < LINE_WORDS; i++)
    if (__atomic_load_n(waiting->line + i, __ATOMIC_ACQUIRE) >> 32 != waiting->epoch) return false;
  return true;
}

static void receive_line(const struct ll_session *session, size_t slot, char *data) {
  struct line_state state = {line_at(session, session->launch->rank, slot), session->epoch};
  fiber_wait(session->self, line_is_there, &state);
  uint32_t words[LINE_WORDS];
  for (int i = 0; i < LINE_WORDS; i++) words[i] = (uint32_t)__atomic_load_n(state.line + i, __ATOMIC_RELAXED);
  memcpy(data, words, sizeof words);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Exchanges the lines of one epoch: `bytes` of the share from `done` on. Each rank sends to each other one; in a
 * reduce-scatter these are the parts of the others. */
static void run_epoch(struct symmetric *s, struct ll_session *session, const struct share *share, size_t done,
                      size_t bytes) {
  size_t element = type_bytes(s->type), count = (bytes + LINE_DATA - 1) / LINE_DATA, stride = share->all * element;
  size_t place = share->begin * element + done;
  const char *input = operand_of(s, share->work, true, s->rank) + place;
  char *output = operand_of(s, share->work, false, s->rank) + place, received[MAX_LOCAL_RANKS][LINE_DATA];
  for (int rank = 0; rank < s->ranks; rank++)
    for (size_t i = 0; i < count; i++) {
      const char *from = input + i * LINE_DATA + (s->algorithm == REDUCE_SCATTER_LL ? (size_t)rank * stride : 0);
      send_line(session, rank, (size_t)s->rank * count + i, from, least(LINE_DATA, bytes - i * LINE_DATA));
    }
  for (size_t i = 0; i < count; i++) {
    size_t some = least(LINE_DATA, bytes - i * LINE_DATA);
    char *sources[MAX_LOCAL_RANKS], *to = output + i * LINE_DATA;
    for (int rank = 0; rank < s->ranks; rank++) {
      sources[rank] = received[rank];
      receive_line(session, (size_t)rank * count + i, received[rank]);
      if (s->algorithm == ALL_GATHER_LL) memcpy(to + (size_t)rank * stride, received[rank], some);
    }
    if (s->algorithm != ALL_GATHER_LL) reduce_chunk(s, sources, s->ranks, &to, 1, some / element);
  }
  end_epoch(session);
}

/* Fails the kernel if a device may not access an operand that is not in a window. */
static void check_operand(struct symmetric *s, struct fiber *self, const struct share *share, bool input,
                          size_t bytes) {
  const struct release *r = s->release;
  struct field window = input ? r->symmetric_work.input_window : r->symmetric_work.output_window;
  if (get_pointer(share->work, window) != NULL || bytes == 0) return;
  const char *operand = operand_of(s, share->work, input, s->rank);
  if (input ? nccl4j_standin_usable(operand, bytes, s->device) : nccl4j_standin_writable(operand, bytes, s->device))
    return;
  s->failed = true;
  fiber_stop(self);
}

/* A block executes a part of one work. */
static void run_with_ll(struct symmetric *s, struct fiber *self, int block) {
  int index;
  uint32_t fraction;
  find_begin(s, block, &index, &fraction);
  struct share share = share_of(s, block, index);
  size_t bytes = share.count * type_bytes(s->type), all = share.all * type_bytes(s->type), ranks = (size_t)s->ranks;
  check_operand(s, self, &share, true, s->algorithm == REDUCE_SCATTER_LL ? all * ranks : all);
  check_operand(s, self, &share, false, s->algorithm == ALL_GATHER_LL ? all * ranks : all);
  struct ll_session session = open_session(s, self, block);
  for (size_t done = 0; done < bytes; done += LINES_AT_ONCE * LINE_DATA)
    run_epoch(s, &session, &share, done, least(bytes - done, LINES_AT_ONCE * LINE_DATA));
  *stored_epoch(&session) = session.epoch - 2;
}

/* ---- launches ---- */

static void run_block(struct fiber *self, void *argument) {
  struct symmetric_block *block = argument;
  struct symmetric *s = block->launch;
  bool by_ll =
      s->algorithm == ALL_REDUCE_AGXLL_R || s->algorithm == ALL_GATHER_LL || s->algorithm == REDUCE_SCATTER_LL;
  if (by_ll) run_with_ll(s, self, block->index);
  else run_with_barriers(s, self, block->index);
}

struct symmetric *symmetric_new(const char *name, const struct kernel_shape *shape, const void *arguments, size_t bytes,
                                int device) {
  struct symmetric *s = calloc(1, sizeof *s + shape->grid.x * sizeof *s->blocks);
  s->name = name;
  s->arguments = arguments;
  s->bytes = bytes;
  s->device = device;
  s->block_count = (int)shape->grid.x;
  parse_name(s);
  return s;
}

/* The name of the kernel in the plan is the one in NCCL's source. */
static void write_plan(const struct symmetric *s) {
  char name[64] = "";
  const char *begin = strstr(s->name, prefix) + sizeof prefix - 1, *end = strstr(begin, "21ncclSymk");
  snprintf(name, sizeof name, "%.*s", end == NULL ? (int)strlen(begin) : (int)(end - begin), begin);
  int works = get_int(range_of(s, s->block_count - 1), s->release->range.last) + 1;
  for (int i = 0; i < works && plan_wanted(); i++)
    plan_write_symmetric(name, s->rank, s->ranks, s->block_count, get(work_at(s, i), s->release->symmetric_work.count));
}

/* Checks the launch against the table of the release. */
static void start(struct symmetric *s) {
  const struct release *r = s->release = release_find();
  if (s->bytes < r->symmetric_bytes + r->symmetric_work_bytes) refuse(s->name, "its arguments are too short");
  s->rank = get_int(s->arguments, r->symmetric.local_rank);
  s->ranks = get_int(s->arguments, r->symmetric.local_ranks);
  if (s->ranks != get_int(s->arguments, r->symmetric.ranks)) refuse(s->name, "its ranks are not all on one host");
  if (s->rank < 0 || s->rank >= s->ranks || s->ranks > MAX_LOCAL_RANKS)
    refuse(s->name, "its rank is not one of the communicator");
  if (get_int(s->arguments, r->symmetric.blocks) < s->block_count)
    refuse(s->name, "its blocks are more than the ranges of works");
  s->argument = get(work_at(s, 0), r->symmetric_work.argument);
  s->fibers = fibers_new();
  write_plan(s);
  for (int i = 0; i < s->block_count && !plan_only(); i++) {
    s->blocks[i] = (struct symmetric_block){s, i};
    fibers_add(s->fibers, run_block, &s->blocks[i]);
  }
}

enum kernel_progress symmetric_poll(struct symmetric *s) {
  if (s->release == NULL) start(s);
  return fibers_poll(s->fibers, &s->failed, get_pointer(s->arguments, s->release->symmetric.abort));
}

void symmetric_free(struct symmetric *s) {
  if (s->fibers != NULL) fibers_free(s->fibers);
  free(s);
}
