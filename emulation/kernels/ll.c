/*
 * The low-latency protocols LL and LL128: data travels in lines that carry a flag, the number of the step, so that the
 * receiver needs no counter to see that a line has arrived. A line of LL has 8 bytes of data in two words, each with a
 * flag of 32 bits; one of LL128 has 120 bytes and a flag of 64 bits, and lines are written in groups of 16. Where in
 * the group a GPU puts each word is its own matter, since both ends are GPUs; here the words are in order.
 */
#include "primitives.h"

#include <string.h>

#define LL_LINE 16
#define LL_DATA 8
#define LL128_LINE 128
#define LL128_DATA 120
#define LL128_GROUP 16
#define LL128_FLAG (LL128_DATA / 8) /* the word */
/* NCCL writes whole slots of LL when the steps, of which a flag has 31 bits, begin again. */
#define LL_CLEAN UINT64_C(0x7ffffff8)
/* Lines that are processed at once: their data fits in the scratch memory. */
#define LINES_AT_ONCE 256

struct line_state {
  const uint64_t *line;
  uint64_t flag;
  bool wide;
};

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static void store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static bool is_there(void *state) {
  const struct line_state *waiting = state;
  const uint64_t *line = waiting->line;
  if (waiting->wide) return load(line + LL128_FLAG) == waiting->flag;
  return load(line) >> 32 == waiting->flag && load(line + 1) >> 32 == waiting->flag;
}

static void write_line(uint64_t *line, const char *data, uint64_t flag, bool wide) {
  if (wide) {
    memcpy(line, data, LL128_DATA);
    store(line + LL128_FLAG, flag);
  } else {
    uint32_t words[2];
    memcpy(words, data, sizeof words);
    store(line, words[0] | flag << 32);
    store(line + 1, words[1] | flag << 32);
  }
}

static void read_line(const uint64_t *line, char *data, bool wide) {
  if (wide) {
    memcpy(data, line, LL128_DATA);
  } else {
    uint32_t words[2] = {(uint32_t)load(line), (uint32_t)load(line + 1)};
    memcpy(data, words, sizeof words);
  }
}

static uint64_t flag_of(const struct link *link, bool wide) {
  return wide ? link->step + 1 : (uint32_t)(link->step + 1);
}

static uint64_t *line_of(const struct link *link, ptrdiff_t index, bool wide) {
  char *slot = link->buffer + link->step % STEPS * link->step_bytes;
  return (uint64_t *)(slot + (size_t)index * (wide ? LL128_LINE : LL_LINE));
}

/* Waits for the line and returns how many have arrived from there on, at most `most`. */
static ptrdiff_t arrived(struct primitives *p, const struct link *link, ptrdiff_t index, ptrdiff_t most, bool wide) {
  struct line_state state = {line_of(link, index, wide), flag_of(link, wide), wide};
  fiber_wait(p->self, is_there, &state);
  ptrdiff_t count = 1;
  for (; count < most; count++) {
    state.line = line_of(link, index + count, wide);
    if (!is_there(&state)) break;
  }
  return count;
}

/* Transfers some lines from `first`, at most `most`, and returns how many. */
static ptrdiff_t run_lines(struct primitives *p, const struct transfer *t, ptrdiff_t first, ptrdiff_t most, bool wide) {
  struct launch *launch = p->block->launch;
  size_t data = wide ? LL128_DATA : LL_DATA;
  ptrdiff_t per_line = (ptrdiff_t)(data / p->element), count = most;
  for (int i = 0; t->receive && i < p->receive_count; i++) count = arrived(p, &p->receives[i], first, count, wide);
  ptrdiff_t done = first * per_line, some = count * per_line;
  if (some > t->count - done) some = t->count - done;
  bool begun = t->from != NOWHERE;
  const char *from = operand(p, t->from, t->from_offset + done, some);
  char *to = operand(p, t->to, t->to_offset + done, some);
  memset(launch->values, 0, (size_t)count * data);
  if (begun) memcpy(launch->values, from, (size_t)some * p->element);
  if (t->from == INPUT && p->function.operator == PRE_MUL_SUM)
    arithmetic_multiply(p->function.type, p->argument, launch->values, (size_t)some);
  for (int i = 0; t->receive && i < p->receive_count; i++) {
    char *received = begun ? launch->others : launch->values;
    for (ptrdiff_t k = 0; k < count; k++)
      read_line(line_of(&p->receives[i], first + k, wide), received + (size_t)k * data, wide);
    if (begun)
      arithmetic_reduce(p->function.operator, p->function.type, p->argument, launch->values, received, (size_t)some);
    begun = true;
  }
  if (t->finish && p->function.operator == SUM_POST_DIV)
    arithmetic_divide(p->function.type, p->argument, launch->values, (size_t)some);
  for (int i = 0; t->send && i < p->send_count; i++)
    for (ptrdiff_t k = 0; k < count; k++)
      write_line(line_of(&p->sends[i], first + k, wide), launch->values + (size_t)k * data, flag_of(&p->sends[i], wide),
                 wide);
  if (to != NULL && some > 0) memcpy(to, launch->values, (size_t)some * p->element);
  return count;
}

/* Returns the lines that are written: those with data, then those that only carry the flag. */
static ptrdiff_t lines_to_write(const struct link *link, ptrdiff_t lines, bool wide) {
  if (wide) return (lines + LL128_GROUP - 1) / LL128_GROUP * LL128_GROUP;
  bool clean = (link->step & LL_CLEAN) == LL_CLEAN;
  return clean ? (ptrdiff_t)(link->step_bytes / LL_LINE) : lines;
}

static void end_send(struct link *link, ptrdiff_t lines, bool wide) {
  static const char nothing[LL128_DATA];
  for (ptrdiff_t k = lines; k < lines_to_write(link, lines, wide); k++)
    write_line(line_of(link, k, wide), nothing, flag_of(link, wide), wide);
  link->step++;
  /* Proxies wait for the flags of LL, but LL128 counts its steps for them, too. */
  if (wide && link->slots != NULL) link_post(link);
}

void ll_run(struct primitives *p, const struct transfer *t) {
  bool wide = p->function.protocol == LL128;
  ptrdiff_t per_line = (ptrdiff_t)((wide ? LL128_DATA : LL_DATA) / p->element);
  ptrdiff_t lines = (t->count + per_line - 1) / per_line;
  for (int i = 0; t->send && i < p->send_count; i++) {
    struct link *link = &p->sends[i];
    link_wait(p, link, 1);
    link_size(p, link, (size_t)lines_to_write(link, lines, wide) * (wide ? LL128_LINE : LL_LINE));
  }
  for (ptrdiff_t done = 0; done < lines;)
    done += run_lines(p, t, done, lines - done < LINES_AT_ONCE ? lines - done : LINES_AT_ONCE, wide);
  for (int i = 0; t->receive && i < p->receive_count; i++) {
    p->receives[i].step++;
    link_post(&p->receives[i]);
  }
  for (int i = 0; t->send && i < p->send_count; i++) end_send(&p->sends[i], lines, wide);
}
