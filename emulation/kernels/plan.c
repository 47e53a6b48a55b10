/*
 * NCCL's plan, as a launch shows it: with NCCL4J_STANDIN_PLAN=FILE, one line of blank-separated keys and values per
 * channel and work; per work of a kernel for symmetric memory. With NCCL4J_STANDIN_PLAN_ONLY=1 nothing else is done, so
 * that thousands of counts can be planned.
 */
#include "launch.h"

#include "standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE_BYTES 4096

static int file = -1;
static bool only;

static void open_file(void) {
  const char *name = getenv("NCCL4J_STANDIN_PLAN");
  only = nccl4j_standin_number("NCCL4J_STANDIN_PLAN_ONLY", 0, 0, 1) != 0;
  if (name == NULL) return;
  file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) nccl4j_standin_refuse_variable("NCCL4J_STANDIN_PLAN", "a file that can be written to");
}

static void read_environment(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_file);
}

bool plan_wanted(void) {
  read_environment();
  return file >= 0;
}

bool plan_only(void) {
  read_environment();
  return only;
}

struct line {
  size_t length;
  char text[LINE_BYTES];
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...) {
  va_list values;
  va_start(values, format);
  int length = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, values);
  va_end(values);
  line->length += (size_t)length;
  if (line->length >= sizeof line->text)
    line->length = sizeof line->text - 1; /* a ring of very many ranks is cut off */
}

static const char *type_name(ncclDataType_t type) {
  static const char *const names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                      "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return names[type];
}

/* One call a line, so that lines of several threads and processes do not mix. */
static void write_line(struct line *line) {
  line->text[line->length++] = '\n';
  if (write(file, line->text, line->length) != (ssize_t)line->length) abort();
}

void plan_write_symmetric(const char *kernel, int rank, int ranks, int blocks, size_t count) {
  struct line line = {0};
  append(&line, "rank %d ranks %d nodes 1 blocks %d kernel %s count %zu", rank, ranks, blocks, kernel, count);
  write_line(&line);
}

static void append_collective(struct line *line, const struct block *block, const void *work) {
  const struct release *r = block->launch->release;
  const struct function *function = &block->batch.function;
  struct part part = part_of(block, work);
  append(line, " type %s algorithm %s protocol %s operator %s", type_name(function->type),
         algorithm_name(function->algorithm), protocol_name(function->protocol), operator_name(function->operator));
  append(line, " warps %d channels %d-%d", get_int(work, r->collective.warps), get_int(work, r->collective.first),
         get_int(work, r->collective.last));
  append(line, " offset %td count %td part %td chunk %td", part.offset, part.count, part.length, part.chunk);
  append(line, " direct %d registered %d root %d", get_int(work, r->collective.direct),
         get_int(work, r->collective.registered), get_int(work, r->collective.root));
}

static void append_p2p(struct line *line, const struct block *block, const void *work) {
  const struct release *r = block->launch->release;
  for (int send = 1; send >= 0; send--) {
    const char *name = send ? "send" : "receive";
    size_t begin, end;
    if (!p2p_part(block, work, send != 0, &begin, &end)) continue;
    append(line, " %s %d %s-offset %zu %s-part %zu %s-chunk %zu %s-protocol %s %s-registered %d", name,
           get_int(work, send ? r->p2p.send_rank : r->p2p.receive_rank), name, begin, name, end - begin, name,
           p2p_chunk(block, work, send != 0), name,
           protocol_name(get_int(work, send ? r->p2p.send_ll : r->p2p.receive_ll) ? LL : SIMPLE), name,
           get_int(work, send ? r->p2p.send_registered : r->p2p.receive_registered));
  }
}

static void append_broadcast(struct line *line, const struct block *block, const void *work) {
  const struct release *r = block->launch->release;
  append(line, " protocol %s depth %d bytes %llu chunk %d", protocol_name(block->batch.function.protocol),
         get_int(work, r->broadcast.depth), (unsigned long long)get(work, r->broadcast.bytes),
         get_int(work, r->broadcast.chunk));
}

static void append_channel(struct line *line, const struct block *block) {
  const struct release *r = block->launch->release;
  const int *ring = get_pointer(block->channel, r->channel.ring);
  append(line, " ring ");
  for (int i = 0; i < block->launch->ranks; i++) append(line, "%s%d", i == 0 ? "" : ",", ring[i]);
  append(line, " tree-up %d tree-down ", get_int(block->channel, r->channel.tree_up));
  for (int i = 0; i < TREE_CHILDREN; i++)
    append(line, "%s%d", i == 0 ? "" : ",", get_int(block->channel, element(r->channel.tree_down, i)));
}

void plan_write(const struct block *block) {
  for (int i = 0; i < block->batch.count; i++) {
    const void *work = batch_work(&block->batch, i);
    struct line line = {0};
    append(&line, "rank %d ranks %d nodes %d blocks %d channel %d function %s", block->launch->rank,
           block->launch->ranks, get_int(block->launch->communicator, block->launch->release->communicator.nodes),
           block->launch->block_count, block->channel_number, operation_name(block->batch.function.operation));
    if (block->batch.type == WORK_P2P) append_p2p(&line, block, work);
    else if (block->batch.type == WORK_BROADCAST) append_broadcast(&line, block, work);
    else append_collective(&line, block, work);
    append_channel(&line, block);
    write_line(&line);
  }
}
