/* Tests of the kernels, on communicators built by hand; see README.md. */
#include "selftest_communicator.h"
/* Fibers, which the library does not export. */
#include "kernels/fiber.c"

#include <pthread.h>

static const char kernel_name[] = "_Z23ncclDevKernel_Generic24ncclDevKernelArgsStorage";

/* ---- collectives ---- */

struct test {
  struct function function;
  int ranks, channels, root;
  size_t count; /* as the caller of NCCL counts, in elements of the type */
  int grains;
  bool in_place;
  int direct;         /* PEER_WRITES or PEER_READS: registered buffers */
  bool proxy;         /* between ranks 0 and 1 */
  int64_t first_size; /* bytes of the proxy's first slice; 0: not checked */
  uint64_t argument;  /* of the operator */
  bool by_address;
  unsigned seed;
};

struct buffers {
  char *input[RANKS_MOST], *output[RANKS_MOST];
  size_t input_bytes, output_bytes, block; /* block: the bytes that a rank contributes or gets */
};

static bool reduces(const struct test *t) {
  enum operation operation = t->function.operation;
  return operation == ALL_REDUCE || operation == REDUCE || operation == REDUCE_SCATTER;
}

static size_t element_bytes(const struct test *t) { return reduces(t) ? sizeof(uint32_t) : 1; }

static uint32_t value_of(const struct test *t, int rank, size_t place) {
  return (uint32_t)(place * 2654435761u + (unsigned)rank * 40503u + t->seed);
}

static char pattern(const struct test *t, int rank, size_t byte) {
  uint32_t value = value_of(t, rank, byte / sizeof(uint32_t));
  return (char)(value >> 8 * (byte % sizeof value));
}

static void allocate(const struct test *t, struct buffers *b) {
  enum operation operation = t->function.operation;
  b->block = t->count * element_bytes(t);
  b->input_bytes = b->block * (size_t)(operation == REDUCE_SCATTER ? t->ranks : 1);
  b->output_bytes = b->block * (size_t)(operation == ALL_GATHER ? t->ranks : 1);
  for (int r = 0; r < t->ranks; r++) {
    b->output[r] = device_memory(b->output_bytes > b->input_bytes ? b->output_bytes : b->input_bytes);
    b->input[r] = device_memory(b->input_bytes);
    if (t->in_place) {
      CHECK(cudaFree(b->input[r]) == cudaSuccess);
      if (operation == REDUCE_SCATTER) b->input[r] = b->output[r], b->output[r] += (size_t)r * b->block;
      else b->input[r] = b->output[r] + (operation == ALL_GATHER ? (size_t)r * b->block : 0);
    }
    memset(b->output[r], 0xa5, t->in_place ? 0 : b->output_bytes);
    for (size_t i = 0; i < b->input_bytes; i++) b->input[r][i] = pattern(t, r, i);
  }
}

static void release(const struct test *t, struct buffers *b) {
  for (int r = 0; r < t->ranks; r++) {
    bool shifted = t->in_place && t->function.operation == REDUCE_SCATTER;
    if (!t->in_place) CHECK(cudaFree(b->input[r]) == cudaSuccess);
    CHECK(cudaFree(shifted ? b->input[r] : b->output[r]) == cudaSuccess);
  }
}

static char expected_byte(const struct test *t, const struct buffers *b, int rank, size_t byte) {
  switch (t->function.operation) {
    case ALL_GATHER: return pattern(t, (int)(byte / b->block), byte % b->block);
    case BROADCAST: return pattern(t, t->root, byte);
    default: break;
  }
  if (t->function.operation == REDUCE && rank != t->root) return t->in_place ? pattern(t, rank, byte) : (char)0xa5;
  size_t place = (byte + (t->function.operation == REDUCE_SCATTER ? (size_t)rank * b->block : 0)) / sizeof(uint32_t);
  uint32_t sum = 0;
  for (int r = 0; r < t->ranks; r++) {
    uint32_t value = value_of(t, r, place);
    if (t->function.operator != MIN_MAX) sum += value;
    else if (r == 0 || (value ^ (uint32_t)t->argument) < (sum ^ (uint32_t)t->argument)) sum = value;
  }
  if (t->function.operator == PRE_MUL_SUM) sum *= (uint32_t)t->argument;
  if (t->function.operator == SUM_POST_DIV) sum /= (uint32_t)(t->argument / 2);
  return (char)(sum >> 8 * (byte % sizeof sum));
}

static void set_work(const struct test *t, const struct buffers *b, int rank, struct collective_work *work,
                     uintptr_t *remote) {
  int last = t->channels - 1;
  size_t part = t->count / (size_t)t->channels;
  *work = (struct collective_work){
      .last = (uint32_t)last & 0xff,
      .warps = 16,
      .registered = t->direct != 0,
      .direct = t->direct == PEER_READS ? PEER_READS : 0,
      .root = (uint32_t)t->root,
      .argument = t->by_address ? (uint64_t)(uintptr_t)&t->argument : t->argument,
      .argument_is_address = t->by_address,
      .send = b->input[rank],
      .receive = b->output[rank],
      .receive_offset = 64,
      .remote_receives = remote,
      .grains_first = (uint32_t)t->grains & 0x1fffff,
      .grains_middle = (uint32_t)t->grains & 0x1fffff,
      .grains_last = (uint32_t)t->grains & 0x1fffff,
  };
  work->counts[0] = last == 0 ? t->count : part;
  work->counts[1] = last == 0 ? 0 : part;
  work->counts[2] = last == 0 ? 0 : t->count - part * (size_t)last;
  for (int i = 0; i < t->ranks; i++) remote[i] = (uintptr_t)b->output[rank] - 64;
}

/* ---- running collectives ---- */

static uint64_t steps_of_slice(const struct test *t) {
  bool halves = t->function.operation != BROADCAST && t->function.operation != REDUCE && t->function.algorithm == RING;
  return halves && t->function.protocol == SIMPLE ? 2 : 1;
}

static struct kernel *launch_of(const struct test *t, struct world *w, const struct buffers *b, int rank,
                                uintptr_t *remote) {
  struct collective_work work;
  struct launch_arguments arguments;
  set_work(t, b, rank, &work, remote);
  arguments_begin(&arguments, w, rank);
  arguments_batch(&arguments, w, 1, function_number(t->function), &work, sizeof work, 1, NULL);
  return arguments_launch(&arguments, w, kernel_name);
}

static void check_results(const struct test *t, const struct buffers *b) {
  for (int r = 0; r < t->ranks; r++) {
    for (size_t i = 0; i < b->output_bytes; i++) {
      if (b->output[r][i] == expected_byte(t, b, r, i)) continue;
      fprintf(stderr, "%s %s %s of %d ranks: rank %d, byte %zu of %zu is wrong\n",
              operation_name(t->function.operation), algorithm_name(t->function.algorithm),
              protocol_name(t->function.protocol), t->ranks, r, i, b->output_bytes);
      exit(1);
    }
  }
}

/* Runs the collective once on a world that may have been used before. */
static void run_on(const struct test *t, struct world *w) {
  struct buffers b;
  struct kernel *kernels[RANKS_MOST];
  static uintptr_t remote[RANKS_MOST][RANKS_MOST];
  struct proxy proxy;
  allocate(t, &b);
  if (t->proxy) proxy_open(&proxy, w, t->function.protocol, steps_of_slice(t), 0);
  for (int r = 0; r < t->ranks; r++) kernels[r] = launch_of(t, w, &b, r, remote[r]);
  run_all(kernels, t->ranks, t->seed, t->proxy ? proxy_move : NULL, &proxy);
  check_results(t, &b);
  if (t->proxy && t->first_size) CHECK(proxy.first_size == t->first_size);
  if (t->proxy) proxy_close(&proxy);
  release(t, &b);
}

static void run(struct test t) {
  struct world *w = world_new(t.ranks, t.channels);
  if (t.direct) set_flags(w, PEER_WRITES | PEER_READS);
  run_on(&t, w);
  for (int k = 0; k < t.channels; k++) CHECK(w->communicators[0]->channel[k].works_done == 1);
  world_free(w);
}

static struct function a_function(enum operation operation, enum algorithm algorithm, enum protocol protocol) {
  struct function f = {.operation = operation, .operator = SUM, .algorithm = algorithm, .protocol = protocol};
  struct test t = {.function = f};
  f.type = reduces(&t) ? ncclUint32 : ncclInt8;
  return f;
}

static void test_collectives(void) {
  static const enum operation operations[] = {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_REDUCE};
  static const int grains[] = {[LL] = 7, [LL128] = 2, [SIMPLE] = 5};
  static const size_t counts[] = {1, 37, 1500, 9001};
  unsigned seed = 1;
  for (int ranks = 2; ranks <= 6; ranks++)
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
      for (int protocol = LL; protocol <= SIMPLE; protocol++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
          for (int channels = 1; channels <= 3; channels += 2, seed++)
            run((struct test){
                .function = a_function(operations[o], o == 5 ? TREE : RING, (enum protocol)protocol),
                .ranks = ranks,
                .channels = channels,
                .root = (int)seed % ranks,
                .count = counts[i] + (size_t)(channels - 1),
                .grains = grains[protocol],
                .in_place = seed % 3 == 0,
                .seed = seed,
            });
}

/* Few elements make the algorithm aggregate many trees, and their pieces share steps. */
static void test_pat(void) {
  static const size_t counts[] = {1, 3, 40, 200, 3000, 9001};
  unsigned seed = 0;
  for (int ranks = 2; ranks <= RANKS_MOST; ranks++)
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
      for (int scatter = 0; scatter < 2; scatter++, seed++) {
        struct test t = {.function = a_function(scatter ? REDUCE_SCATTER : ALL_GATHER, PAT, SIMPLE),
                         .ranks = ranks,
                         .channels = 1,
                         .count = counts[i],
                         .grains = 1 + (int)seed % 8,
                         .in_place = seed % 3 == 0,
                         .argument = UINT32_MAX, /* the greatest value, for MIN_MAX */
                         .seed = seed};
        if (scatter && i % 2 == 1) t.function.operator = MIN_MAX;
        struct world *w = world_new(ranks, 1);
        run_on(&t, w);
        run_on(&t, w);
        world_free(w);
      }
}

/* The same connections serve one collective after the other, whose chunks have other numbers of steps. */
static void test_steps(void) {
  static const enum operation operations[] = {ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER};
  struct world *w = world_new(3, 2);
  for (unsigned i = 0; i < 60; i++) {
    struct test t = {.ranks = 3, .channels = 2, .root = 1, .count = 20000 + 777 * i, .seed = i};
    t.function = a_function(operations[i % 5], RING, (enum protocol)(i % 3));
    bool halves = steps_of_slice(&t) == 2;
    t.grains = t.function.protocol == LL ? 32 : t.function.protocol == LL128 ? 2 : halves ? 24 : 8;
    run_on(&t, w);
  }
  world_free(w);
}

static void test_operators(void) {
  static const enum operation operations[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_REDUCE};
  for (unsigned o = 0; o < 4; o++)
    for (int protocol = LL; protocol <= SIMPLE; protocol++)
      for (int ranks = 2; ranks <= 4; ranks++)
        for (int by_address = 0; by_address < 2; by_address++)
          for (int divides = 0; divides < 2; divides++) {
            struct test t = {.function = a_function(operations[o], o == 3 ? TREE : RING, (enum protocol)protocol),
                             .ranks = ranks,
                             .channels = 1,
                             .count = 2000,
                             .grains = 2,
                             .argument = divides ? 14 : 7,
                             .by_address = by_address != 0};
            t.function.operator = divides ? SUM_POST_DIV : PRE_MUL_SUM;
            run(t);
          }
}

/* Before the flags of LL begin again, senders write whole slots. */
static void test_flags_begin_again(void) {
  const uint64_t first = 0x7ffffff6, clean = 0x7ffffff8;
  struct test t = {
      .function = a_function(ALL_REDUCE, RING, LL), .ranks = 2, .channels = 1, .count = 1000, .grains = 32};
  for (int proxy = 0; proxy < 2; proxy++) {
    struct world *w = world_new(2, 1);
    for (int r = 0; r < 2; r++) {
      struct peer *peer = w->communicators[r]->channel[0].peers[1 - r];
      peer->send[0].step = peer->receive[0].step = *peer->receive[0].head = *peer->receive[0].tail = first;
    }
    t.proxy = proxy != 0;
    run_on(&t, w);
    const struct connection *receive = &w->communicators[1]->channel[0].peers[0]->receive[0];
    CHECK(receive->step > clean && receive->step <= clean + SLOTS);
    for (uint64_t step = clean; step < receive->step; step++) {
      const uint64_t *words = (const uint64_t *)(receive->buffers[LL] + step % SLOTS * STEP_LL);
      for (int i = 0; i < STEP_LL / 8; i++) CHECK(words[i] >> 32 == step + 1);
    }
    world_free(w);
  }
}

/* A line of LL has arrived when both of its flags have. */
static void test_half_a_line(void) {
  struct test t = {.function = a_function(BROADCAST, RING, LL), .ranks = 2, .channels = 1, .count = 8, .grains = 1};
  struct world *w = world_new(2, 1);
  uintptr_t remote[RANKS_MOST];
  struct buffers b;
  allocate(&t, &b);
  struct kernel *kernel = launch_of(&t, w, &b, 1, remote);
  uint64_t *line = (uint64_t *)w->communicators[1]->channel[0].peers[0]->receive[0].buffers[LL];
  CHECK(kernel_poll(kernel) == KERNEL_MOVED && kernel_poll(kernel) == KERNEL_WAITS);
  line[0] = UINT64_C(1) << 32 | 0x44332211;
  CHECK(kernel_poll(kernel) == KERNEL_WAITS);
  line[1] = UINT64_C(1) << 32 | 0x88776655;
  CHECK(kernel_poll(kernel) == KERNEL_DONE);
  CHECK(memcmp(b.output[1], "\x11\x22\x33\x44\x55\x66\x77\x88", 8) == 0);
  kernel_free(kernel);
  release(&t, &b);
  world_free(w);
}

/* Ranks exchange addresses for each work, even if it has no data for their channel. */
static void test_registered_without_data(void) {
  for (unsigned seed = 0; seed < 20; seed++) {
    struct test t = {.function = a_function(BROADCAST, RING, SIMPLE),
                     .ranks = 2,
                     .channels = 1,
                     .count = 5000,
                     .grains = 8,
                     .direct = PEER_WRITES,
                     .seed = seed};
    struct world *w = world_new(2, 1);
    static uintptr_t remote[2][RANKS_MOST];
    struct kernel *kernels[2];
    struct buffers b;
    set_flags(w, PEER_WRITES);
    allocate(&t, &b);
    for (int r = 0; r < 2; r++) {
      struct collective_work works[3];
      struct launch_arguments arguments;
      for (int i = 0; i < 3; i++) {
        set_work(&t, &b, r, &works[i], remote[r]);
        if (i < 2) works[i].counts[0] = 0;
      }
      arguments_begin(&arguments, w, r);
      arguments_batch(&arguments, w, 1, function_number(t.function), works, sizeof *works, 3, NULL);
      kernels[r] = arguments_launch(&arguments, w, kernel_name);
    }
    run_all(kernels, 2, seed, NULL, NULL);
    check_results(&t, &b);
    release(&t, &b);
    world_free(w);
  }
}

static void test_proxies(void) {
  static const enum operation operations[] = {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_REDUCE};
  for (unsigned o = 0; o < 6; o++)
    for (int protocol = LL; protocol <= SIMPLE; protocol++)
      run((struct test){.function = a_function(operations[o], o == 5 ? TREE : RING, (enum protocol)protocol),
                        .ranks = 2 + (int)o % 3,
                        .channels = 2,
                        .count = 20000,
                        .grains = protocol == LL128 ? 2 : 8,
                        .root = 1,
                        .proxy = true,
                        .seed = o});
}

/* A slice has at least a 32nd of its steps, so that little data is in one slice. */
static void test_small_slices(void) {
  run((struct test){.function = a_function(ALL_REDUCE, RING, SIMPLE),
                    .ranks = 2,
                    .channels = 1,
                    .count = 40,
                    .grains = 8,
                    .proxy = true,
                    .first_size = 80});
}

/* NCCL registers the buffers of a tree only where each rank has one child in the same process or host. */
static void make_chain(struct world *w) {
  for (int r = 0; r < w->ranks; r++)
    for (int k = 0; k < w->channels; k++) {
      w->communicators[r]->channel[k].tree_up = r - 1;
      for (int i = 0; i < 3; i++) w->communicators[r]->channel[k].tree_down[i] = -1;
      if (r + 1 < w->ranks) w->communicators[r]->channel[k].tree_down[0] = r + 1;
    }
}

static void test_registered(void) {
  static const enum operation operations[] = {ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_REDUCE};
  for (unsigned o = 0; o < 4; o++)
    for (int ranks = 2; ranks <= 6; ranks++)
      for (int direct = PEER_WRITES; direct <= PEER_READS; direct++) {
        /* A receiver cannot read a reduced chunk, which is nowhere in its peer's output. */
        if (operations[o] == ALL_REDUCE && direct == PEER_READS) continue;
        struct test t = {.function = a_function(operations[o], o == 3 ? TREE : RING, SIMPLE),
                         .ranks = ranks,
                         .channels = 2,
                         .count = 30000,
                         .grains = 8,
                         .root = ranks - 1,
                         .direct = direct,
                         .seed = o};
        struct world *w = world_new(ranks, 2);
        make_chain(w);
        set_flags(w, PEER_WRITES | PEER_READS);
        run_on(&t, w);
        run_on(&t, w);
        CHECK(buffers_are_unused(w, 0));
        world_free(w);
      }
}

struct thread_state {
  struct kernel *kernel;
  pthread_t thread;
};

static void *poll_kernel(void *state) {
  enum kernel_progress progress;
  while ((progress = kernel_poll(((struct thread_state *)state)->kernel)) != KERNEL_DONE) {
    CHECK(progress != KERNEL_FAILED);
    if (progress == KERNEL_WAITS) usleep(50);
  }
  return NULL;
}

/* A kernel fails if its output may not be written. */
static void test_read_only_output(void) {
  for (int protocol = LL; protocol <= SIMPLE; protocol++) {
    struct test t = {.function = a_function(BROADCAST, RING, (enum protocol)protocol),
                     .ranks = 2,
                     .channels = 1,
                     .count = 8,
                     .grains = 1};
    struct world *w = world_new(2, 1);
    uintptr_t remote[RANKS_MOST];
    struct buffers b, read_only;
    allocate(&t, &b);
    read_only = b;
    read_only.output[0] = read_only_memory();
    struct kernel *kernel = launch_of(&t, w, &read_only, 0, remote);
    CHECK(kernel_poll(kernel) == KERNEL_FAILED);
    kernel_free(kernel);
    release(&t, &b);
    world_free(w);
  }
  static const char single[] = "oneRankReduceI13FuncPreMulSumIiE";
  struct kernel_shape shape = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
  void *to = read_only_memory(), *from = to, *buffer;
  size_t count = 1;
  uint64_t argument = 1;
  bool is_address = false;
  size_t bytes = kernel_gather(single, (void *[]){&to, &from, &count, &argument, &is_address}, &buffer);
  struct kernel *kernel = kernel_new(single, &shape, buffer, bytes, 0);
  CHECK(kernel_poll(kernel) == KERNEL_FAILED);
  kernel_free(kernel);
  free(buffer);
}

static void test_threads(void) {
  for (int protocol = LL; protocol <= SIMPLE; protocol++) {
    struct test t = {.function = a_function(ALL_REDUCE, RING, (enum protocol)protocol),
                     .ranks = 4,
                     .channels = 3,
                     .count = 50000,
                     .grains = 2};
    struct world *w = world_new(t.ranks, t.channels);
    struct thread_state states[RANKS_MOST];
    uintptr_t remote[RANKS_MOST][RANKS_MOST];
    struct buffers b;
    allocate(&t, &b);
    for (int r = 0; r < t.ranks; r++) {
      states[r].kernel = launch_of(&t, w, &b, r, remote[r]);
      CHECK(pthread_create(&states[r].thread, NULL, poll_kernel, &states[r]) == 0);
    }
    for (int r = 0; r < t.ranks; r++) {
      CHECK(pthread_join(states[r].thread, NULL) == 0);
      kernel_free(states[r].kernel);
    }
    check_results(&t, &b);
    release(&t, &b);
    world_free(w);
  }
}

/* Writes less than a page below its stack. */
static void overflow(struct fiber *self, void *argument) {
  (void)argument;
  ((volatile char *)self->stack)[-8] = 1;
  _exit(0);
}

static void run_overflow(void) {
  struct fibers *fibers = fibers_new();
  fibers_add(fibers, overflow, NULL);
  fibers_run(fibers);
}

/* A fiber that overflows its stack ends the process. */
static void test_overflow(void) {
  int status;
  run_child(run_overflow, &status);
  CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

/* The kernel of a single rank, which multiplies. */
static void test_one_rank(void) {
  static const char name[] = "_ZN12_GLOBAL__N_113oneRankReduceI13FuncPreMulSumI6__halfEEEvPvS3_mmb";
  struct kernel_shape shape = {.grid = {1, 1, 1}, .block = {512, 1, 1}};
  for (int by_address = 0; by_address < 2; by_address++)
    for (int in_place = 0; in_place < 2; in_place++) {
      uint16_t *input, *output, scalar = 0x4000; /* 2 */
      CHECK(cudaMalloc((void **)&input, 2000) == cudaSuccess && cudaMalloc((void **)&output, 2000) == cudaSuccess);
      for (int i = 0; i < 1000; i++) input[i] = (uint16_t)(0x3c00 + i), output[i] = 0;
      void *to = in_place ? input : output, *from = input, *buffer;
      size_t count = 999;
      uint64_t argument = by_address ? (uint64_t)(uintptr_t)&scalar : scalar;
      bool is_address = by_address;
      void *parameters[] = {&to, &from, &count, &argument, &is_address};
      size_t bytes = kernel_gather(name, parameters, &buffer);
      struct kernel *kernel = kernel_new(name, &shape, buffer, bytes, 0);
      CHECK(kernel_poll(kernel) == KERNEL_DONE);
      kernel_free(kernel);
      for (int i = 0; i < 999; i++) CHECK(((uint16_t *)to)[i] == 0x4000 + i);
      CHECK(input[999] == 0x3c00 + 999 && output[999] == 0);
      CHECK(cudaFree(input) == cudaSuccess);
      kernel = kernel_new(name, &shape, buffer, bytes, 0);
      CHECK(kernel_poll(kernel) == KERNEL_FAILED); /* the input is freed */
      kernel_free(kernel);
      free(buffer);
      CHECK(cudaFree(output) == cudaSuccess);
    }
}

int main(void) {
  test_collectives();
  test_pat();
  test_steps();
  test_operators();
  test_flags_begin_again();
  test_half_a_line();
  test_proxies();
  test_small_slices();
  test_registered();
  test_registered_without_data();
  test_read_only_output();
  test_threads();
  test_overflow();
  test_one_rank();
  printf("kernels: passed\n");
  return 0;
}
