/* Tests of sends and receives, of broadcasts in a group, and of how launches pass their works; see README.md. */
#include "selftest_communicator.h"

#include <sys/mman.h>

static const char kernel_name[] = "_Z23ncclDevKernel_Generic24ncclDevKernelArgsStorage";

/* ---- sends and receives ---- */

static const struct function p2p_function = {SEND_RECV, SUM, ncclInt8, RING, SIMPLE};

struct test {
  int ranks, channels, parts; /* parts: channels that share a send or receive */
  bool ll, proxy;
  int direct; /* PEER_WRITES or PEER_READS: registered buffers */
  unsigned seed;
};

/* What each rank sends to each, and has received. */
struct p2p_buffers {
  char *sent[RANKS_MOST][RANKS_MOST], *received[RANKS_MOST][RANKS_MOST];
};

static size_t size_of(const struct test *t, int from, int to) {
  static const size_t sizes[] = {40000, 1, 0, 5000, 700, 4096, 12289};
  return sizes[((unsigned)(from * 5 + to * 3) + t->seed) % 7];
}

static char byte_of(int from, int to, size_t place) { return (char)(from * 31 + to * 17 + (int)(place * 7 >> 3)); }

static void allocate(const struct test *t, struct p2p_buffers *buffers) {
  for (int from = 0; from < t->ranks; from++)
    for (int to = 0; to < t->ranks; to++) {
      size_t bytes = size_of(t, from, to);
      buffers->sent[from][to] = device_memory(bytes);
      buffers->received[to][from] = device_memory(bytes);
      for (size_t i = 0; i < bytes; i++) buffers->sent[from][to][i] = byte_of(from, to, i);
      memset(buffers->received[to][from], 0xa5, bytes + 1);
    }
}

static void check_and_release(const struct test *t, struct p2p_buffers *buffers) {
  for (int from = 0; from < t->ranks; from++)
    for (int to = 0; to < t->ranks; to++) {
      size_t bytes = size_of(t, from, to);
      for (size_t i = 0; i < bytes; i++) CHECK(buffers->received[to][from][i] == byte_of(from, to, i));
      CHECK(buffers->received[to][from][bytes] == (char)0xa5);
      CHECK(cudaFree(buffers->sent[from][to]) == cudaSuccess);
      CHECK(cudaFree(buffers->received[to][from]) == cudaSuccess);
    }
}

/* NCCL's small float: three bits after the first one. */
static uint8_t encode_chunk(uint32_t bytes) {
  int log2 = 31 - __builtin_clz(bytes);
  return (uint8_t)((log2 - 2) << 3 | (bytes >> (log2 - 3) & 7));
}

static struct p2p_work work_of(const struct test *t, const struct p2p_buffers *buffers, int rank, int round) {
  int to = (rank + round) % t->ranks, from = (rank + t->ranks - round) % t->ranks;
  bool direct = t->direct != 0 && round != 0;
  struct p2p_work work = {
      .send = buffers->sent[rank][to],
      .receive = buffers->received[rank][from],
      .send_bytes = size_of(t, rank, to),
      .receive_bytes = size_of(t, from, rank),
      .send_rank = to,
      .receive_rank = from,
      .channels = (uint8_t)t->channels,
      .base = (uint8_t)(round % t->channels),
      .send_channels = (uint8_t)t->parts,
      .receive_channels = (uint8_t)t->parts,
      .send_chunk = encode_chunk(t->ll ? 512 : 4096),
      .receive_chunk = encode_chunk(t->ll ? 512 : 4096),
      .send_ll = t->ll,
      .receive_ll = t->ll,
  };
  work.send_registered = direct && work.send_bytes > 0;
  work.receive_registered = direct && work.receive_bytes > 0;
  return work;
}

static bool serves(const struct p2p_work *work, int channel) {
  return ((channel - work->base) & (work->channels - 1)) < work->send_channels;
}

static void run(struct test t) {
  struct world *w = world_new(t.ranks, t.channels);
  struct p2p_buffers buffers;
  struct kernel *kernels[RANKS_MOST];
  struct proxy proxy;
  set_flags(w, t.direct);
  for (int r = 0; r < t.ranks; r++) w->communicators[r]->all_nvlink = t.seed % 2;
  if (t.proxy) proxy_open(&proxy, w, t.ll ? LL : SIMPLE, 1, 1);
  allocate(&t, &buffers);
  for (int r = 0; r < t.ranks; r++) {
    struct p2p_work works[RANKS_MOST];
    uint64_t mine[CHANNELS_MOST] = {0};
    for (int round = 0; round < t.ranks; round++) {
      works[round] = work_of(&t, &buffers, r, round);
      for (int k = 0; k < t.channels; k++)
        if (serves(&works[round], k)) mine[k] |= UINT64_C(1) << round;
    }
    struct launch_arguments arguments;
    arguments_begin(&arguments, w, r);
    arguments_batch(&arguments, w, 0, function_number(p2p_function), works, sizeof *works, t.ranks, mine);
    kernels[r] = arguments_launch(&arguments, w, kernel_name);
  }
  run_all(kernels, t.ranks, t.seed + 1, t.proxy ? proxy_move : NULL, &proxy);
  check_and_release(&t, &buffers);
  if (t.direct) CHECK(buffers_are_unused(w, 1));
  if (t.proxy) proxy_close(&proxy);
  world_free(w);
}

static void test_sends_and_receives(void) {
  for (int ranks = 1; ranks <= 5; ranks++)
    for (unsigned seed = 0; seed < 8; seed++)
      for (int ll = 0; ll < 2; ll++)
        for (int parts = 1; parts <= 2; parts++)
          run((struct test){.ranks = ranks, .channels = 2, .parts = parts, .ll = ll != 0, .seed = seed});
}

static void test_proxies(void) {
  for (unsigned seed = 0; seed < 7; seed++)
    for (int ll = 0; ll < 2; ll++)
      run((struct test){
          .ranks = 2 + (int)seed % 3, .channels = 2, .parts = 2, .ll = ll != 0, .proxy = true, .seed = seed});
}

static void test_registered_buffers(void) {
  for (unsigned seed = 0; seed < 7; seed++)
    for (int direct = PEER_WRITES; direct <= PEER_READS; direct++)
      run((struct test){.ranks = 4, .channels = 2, .parts = 2, .direct = direct, .seed = seed});
}

/* The operand that the peer accesses is given by the address that the peer sees, which this process may not have. */
static void test_foreign_addresses(void) {
  for (int direct = PEER_WRITES; direct <= PEER_READS; direct++) {
    struct world *w = world_new(2, 1);
    struct kernel *kernels[2];
    char *sent = device_memory(9000), *received = device_memory(9000), *foreign = (char *)64;
    memset(sent, 7, 9000);
    memset(received, 0, 9000);
    set_flags(w, direct);
    /* The exchange of addresses gives the foreign one, which the other side corrects here in place of a mapping. */
    void **exchange = w->communicators[0]->channel[0].peers[1]->send[1].exchange;
    for (int r = 0; r < 2; r++) {
      struct p2p_work work = {.channels = 1, .send_rank = 1 - r, .receive_rank = 1 - r};
      work.send_chunk = work.receive_chunk = encode_chunk(4096);
      if (r == 0) work.send = direct == PEER_READS ? foreign : sent, work.send_bytes = 9000, work.send_channels = 1;
      else
        work.receive = direct == PEER_WRITES ? foreign : received, work.receive_bytes = 9000, work.receive_channels = 1;
      work.send_registered = work.receive_registered = 1;
      struct launch_arguments arguments;
      arguments_begin(&arguments, w, r);
      arguments_batch(&arguments, w, 0, function_number(p2p_function), &work, sizeof work, 1, NULL);
      kernels[r] = arguments_launch(&arguments, w, kernel_name);
    }
    int provider = direct == PEER_WRITES ? 1 : 0;
    CHECK(kernel_poll(kernels[provider]) != KERNEL_FAILED);
    CHECK(*exchange == foreign);
    *exchange = direct == PEER_WRITES ? received : sent;
    /* A sender whose memory is read does not end before that. */
    for (int i = 0; i < 3 && direct == PEER_READS; i++) CHECK(kernel_poll(kernels[provider]) != KERNEL_DONE);
    run_all(kernels, 2, 5, NULL, NULL);
    for (int i = 0; i < 9000; i++) CHECK(received[i] == 7);
    CHECK(cudaFree(sent) == cudaSuccess && cudaFree(received) == cudaSuccess);
    world_free(w);
  }
}

/* ---- broadcasts of a group ---- */

static void test_broadcasts(void) {
  static const size_t sizes[RANKS_MOST] = {5000, 0, 20000, 1, 777};
  static const int chunks[] = {[LL] = 512, [LL128] = 3840, [SIMPLE] = 4096};
  for (int ranks = 2; ranks <= 5; ranks++)
    for (int protocol = LL; protocol <= SIMPLE; protocol++)
      for (int in_place = 0; in_place < 2; in_place++) {
        struct world *w = world_new(ranks, 1);
        struct kernel *kernels[RANKS_MOST];
        char *received[RANKS_MOST][RANKS_MOST], *sent[RANKS_MOST];
        struct function f = {ALL_GATHER_V, SUM, ncclInt8, RING, (enum protocol)protocol};
        for (int r = 0; r < ranks; r++) {
          struct broadcast_work works[RANKS_MOST] = {{0}};
          for (int root = 0; root < ranks; root++) {
            received[r][root] = device_memory(sizes[root]);
            memset(received[r][root], 0xa5, sizes[root] + 1);
            works[root] = (struct broadcast_work){.depth = (r - root + ranks) % ranks,
                                                  .chunk = chunks[protocol],
                                                  .receive = received[r][root],
                                                  .bytes = sizes[root]};
          }
          sent[r] = in_place ? received[r][r] : device_memory(sizes[r]);
          for (size_t i = 0; i < sizes[r]; i++) sent[r][i] = byte_of(r, 0, i);
          works[r].send = sent[r];
          struct launch_arguments arguments;
          arguments_begin(&arguments, w, r);
          arguments_batch(&arguments, w, 3, function_number(f), works, sizeof *works, ranks, NULL);
          kernels[r] = arguments_launch(&arguments, w, kernel_name);
        }
        run_all(kernels, ranks, 3, NULL, NULL);
        for (int r = 0; r < ranks; r++) {
          for (int root = 0; root < ranks; root++) {
            for (size_t i = 0; i < sizes[root]; i++) CHECK(received[r][root][i] == byte_of(root, 0, i));
            CHECK(received[r][root][sizes[root]] == (char)0xa5);
            CHECK(cudaFree(received[r][root]) == cudaSuccess);
          }
          if (!in_place) CHECK(cudaFree(sent[r]) == cudaSuccess);
        }
        world_free(w);
      }
}

/* ---- launches ---- */

#define WORKS 4
#define QUEUE_BYTES 1024

/* Broadcasts from rank 0 to rank 1: in a queue whose end is inside a work, in batches that extend each other and follow
 * each other. */
static void test_batches(void) {
  struct world *w = world_new(2, 1);
  struct kernel *kernels[2];
  _Alignas(16) static char queues[2][QUEUE_BYTES];
  char *sent[WORKS], *received[WORKS];
  struct function f = {BROADCAST, SUM, ncclInt8, RING, SIMPLE};
  uint32_t place = QUEUE_BYTES - 3 * sizeof(struct collective_work) / 2;
  for (int i = 0; i < WORKS; i++) {
    sent[i] = device_memory(3000);
    received[i] = device_memory(3000);
    for (size_t j = 0; j < 3000; j++) sent[i][j] = byte_of(i, 0, j);
  }
  for (int r = 0; r < 2; r++) {
    struct launch_arguments a;
    arguments_begin(&a, w, r);
    struct arguments *header = (struct arguments *)a.bytes;
    header->storage = 1;
    header->mask = QUEUE_BYTES - 1;
    header->works = queues[r];
    for (int i = 0; i < WORKS; i++) {
      struct collective_work work = {.send = sent[i],
                                     .receive = r == 0 ? sent[i] : received[i],
                                     .counts = {3000},
                                     .grains_first = 3,
                                     .profiled = i == 2};
      for (size_t pack = 0; pack < sizeof work; pack += 16)
        memcpy(queues[r] + ((place + (size_t)i * sizeof work + pack) & (QUEUE_BYTES - 1)), (char *)&work + pack, 16);
    }
    uint32_t number = (uint32_t)function_number(f) & 0x7fff, second = place + sizeof(struct collective_work);
    struct batch_header batches[] = {
        {.jump = 2, .extends = 1, .type = 1, .function = number, .offset = place, .set = 1},
        {0},
        {.jump = 1, .type = 1, .function = number, .offset = second, .set = 1},
        {.type = 1, .function = number, .offset = second, .set = 6},
    };
    memcpy(a.bytes + a.used, batches, sizeof batches);
    a.used += sizeof batches;
    kernels[r] = arguments_launch(&a, w, kernel_name);
  }
  run_all(kernels, 2, 9, NULL, NULL);
  for (int i = 0; i < WORKS; i++) {
    CHECK(memcmp(sent[i], received[i], 3000) == 0);
    CHECK(cudaFree(sent[i]) == cudaSuccess && cudaFree(received[i]) == cudaSuccess);
  }
  for (int r = 0; r < 2; r++) {
    const uint64_t *started = w->communicators[r]->started, *completed = w->communicators[r]->completed;
    CHECK(w->communicators[r]->channel[0].works_done == WORKS);
    for (uint64_t event = 0; event < 64; event++) { /* a counter and a time each */
      CHECK(completed[2 * event] == (event == 3 ? 3 : 0) && (completed[2 * event + 1] != 0) == (event == 3));
      CHECK(started[2 * event] == completed[2 * event] && started[2 * event + 1] <= completed[2 * event + 1]);
    }
  }
  world_free(w);
}

/* Returns a launch of rank 0 that broadcasts to rank 1. */
static struct kernel *launch_broadcast(struct world *w, void *memory, const char *name, struct function function) {
  struct collective_work work = {.send = memory, .receive = memory, .counts = {100000}, .grains_first = 3};
  struct launch_arguments a;
  arguments_begin(&a, w, 0);
  arguments_batch(&a, w, 1, function_number(function), &work, sizeof work, 1, NULL);
  return arguments_launch(&a, w, name);
}

static const struct function broadcast = {BROADCAST, SUM, ncclInt8, RING, SIMPLE};

static void test_abort(void) {
  struct world *w = world_new(2, 1);
  void *memory = device_memory(100000);
  struct kernel *kernel = launch_broadcast(w, memory, kernel_name, broadcast);
  CHECK(kernel_poll(kernel) == KERNEL_MOVED);
  for (int i = 0; i < 3; i++) CHECK(kernel_poll(kernel) == KERNEL_WAITS);
  w->aborted = 1;
  CHECK(kernel_poll(kernel) == KERNEL_DONE);
  kernel_free(kernel);
  kernel_free(launch_broadcast(w, memory, kernel_name, broadcast)); /* one that has not begun */
  CHECK(cudaFree(memory) == cudaSuccess);
  world_free(w);
}

static void test_freed_memory(void) {
  struct world *w = world_new(2, 1);
  char *memory = device_memory(100000);
  CHECK(cudaFree(memory) == cudaSuccess);
  struct kernel *kernel = launch_broadcast(w, memory, kernel_name, broadcast);
  CHECK(kernel_poll(kernel) == KERNEL_FAILED);
  kernel_free(kernel);
  world_free(w);
}

static void (*refused_action)(struct world *w);

static void act(void) { refused_action(world_new(2, 1)); }

/* Runs the action in a process of its own, which it must end, and returns what that wrote to the standard error. */
static const char *output_of_failure(void (*action)(struct world *w)) {
  int status;
  refused_action = action;
  const char *text = run_child(act, &status);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  return text;
}

static void launch_unknown(struct world *w) { launch_broadcast(w, NULL, "someKernel", broadcast); }

static void launch_symmetric(struct world *w) { launch_broadcast(w, NULL, "ncclSymkDevKernel_Other", broadcast); }

static void launch_one_rank(struct world *w) {
  kernel_poll(launch_broadcast(w, NULL, "oneRankReduceI13FuncPreMulSumIx", broadcast));
}

static void launch_multicast(struct world *w) {
  struct function f = {ALL_REDUCE, SUM, ncclFloat32, NVLS, SIMPLE};
  kernel_poll(launch_broadcast(w, NULL, kernel_name, f));
}

static void launch_of_newer_works(struct world *w) {
  struct broadcast_work work = {.bytes = 1};
  struct launch_arguments a;
  arguments_begin(&a, w, 0);
  arguments_batch(&a, w, 3, function_number(broadcast), &work, sizeof work, 1, NULL);
  kernel_poll(arguments_launch(&a, w, kernel_name));
}

static void launch_wrong_layout(struct world *w) {
  w->communicators[0]->channels++;
  kernel_poll(launch_broadcast(w, NULL, kernel_name, broadcast));
}

static void launch_of_other_release(struct world *w) {
  release_version = 99999;
  kernel_poll(launch_broadcast(w, NULL, kernel_name, broadcast));
}

static void launch_of_same_structures(struct world *w) {
  release_version = 23100;
  launch_wrong_layout(w);
}

/* Before any launch of this process, since the release is looked for once. */
static void test_other_release(void) {
  const char *text = output_of_failure(launch_of_other_release);
  CHECK(strcmp(text, "nccl4j emulation: a kernel of NCCL release 99999 is not emulated\n") == 0);
  CHECK(strstr(output_of_failure(launch_of_same_structures), "not laid out as in the known release") != NULL);
}

static void check_refused(void (*action)(struct world *w), const char *part) {
  const char *text = output_of_failure(action), beginning[] = "nccl4j emulation: ";
  CHECK(strncmp(text, beginning, sizeof beginning - 1) == 0 && strstr(text, part) != NULL);
}

static void test_refusals(void) {
  check_refused(launch_unknown, "the kernel someKernel is not emulated\n");
  check_refused(launch_multicast, "NVLS");
  if (!BROADCASTS) check_refused(launch_of_newer_works, "(it has works that the known release lacks)");
  check_refused(launch_wrong_layout, "not laid out as in the known release");
  check_refused(launch_symmetric, "the kernel ncclSymkDevKernel_Other (its algorithm is unknown) is not emulated\n");
  check_refused(launch_one_rank, "(its type is unknown) is not emulated\n");
}

static bool count_to_three(const void *arguments, size_t bytes, int *step) {
  CHECK(bytes == sizeof(int *));
  int *limit;
  memcpy(&limit, arguments, sizeof limit);
  if (*step < *limit) (*step)++;
  return *step == 3;
}

static void test_registered_kernels(void) {
  int limit = 2, *address = &limit;
  void *parameters[] = {&address}, *buffer;
  struct kernel_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
  nccl4j_standin_kernel("countToThree", count_to_three);
  CHECK(kernel_gather("countToThree", parameters, &buffer) == sizeof address);
  struct kernel *kernel = kernel_new("countToThree", &shape, buffer, sizeof address, 0);
  free(buffer);
  for (int i = 0; i < 2; i++) CHECK(kernel_poll(kernel) == KERNEL_MOVED);
  CHECK(kernel_poll(kernel) == KERNEL_WAITS);
  limit = 3;
  CHECK(kernel_poll(kernel) == KERNEL_DONE);
  kernel_free(kernel);
}

/* Numbers that NCCL's generator gives in 2.30.7; without those for broadcasts of groups, in 2.28.9. */
static void test_function_numbers(void) {
  int less = BROADCASTS ? 0 : 3;
  CHECK(function_count() == 673);
  CHECK(function_number((struct function){ALL_GATHER, SUM, ncclInt8, RING, SIMPLE}) == 5);
  if (BROADCASTS) CHECK(function_number((struct function){ALL_GATHER_V, SUM, ncclInt8, RING, LL128}) == 7);
  CHECK(function_number((struct function){ALL_REDUCE, MIN_MAX, ncclInt32, NVLS, SIMPLE}) == 61 - less);
  CHECK(function_number((struct function){ALL_REDUCE, SUM, ncclFloat32, RING, LL}) == 261 - less);
  CHECK(function_number((struct function){REDUCE_SCATTER, SUM_POST_DIV, ncclUint8, RING, SIMPLE}) == 671 - less);
  CHECK(function_number(p2p_function) == 672 - less);
  struct function f;
  CHECK(!function_find(-1, BROADCASTS, &f) && !function_find(673 - less, BROADCASTS, &f));
}

/* ---- plans; in a process of its own, since the environment is read once ---- */

static void write_plans(void) {
  struct world *w = world_new(2, 2);
  struct launch_arguments a;
  struct collective_work work = {.last = 1, .warps = 16, .counts = {700, 0, 300}, .grains_first = 2, .grains_last = 1};
  struct function f = {ALL_REDUCE, MIN_MAX, ncclFloat16, TREE, LL};
  arguments_begin(&a, w, 1);
  arguments_batch(&a, w, 1, function_number(f), &work, sizeof work, 1, NULL);
  struct kernel *kernel = arguments_launch(&a, w, kernel_name);
  CHECK(kernel_poll(kernel) == KERNEL_DONE); /* although rank 0 does not take part */
  kernel_free(kernel);
  struct p2p_work p2p = {.send_rank = 0,
                         .receive_rank = 0,
                         .channels = 2,
                         .send_channels = 2,
                         .send_bytes = 6000,
                         .send_chunk = encode_chunk(4096),
                         .send_ll = 1};
  arguments_begin(&a, w, 1);
  arguments_batch(&a, w, 0, function_number(p2p_function), &p2p, sizeof p2p, 1, NULL);
  kernel = arguments_launch(&a, w, kernel_name);
  CHECK(kernel_poll(kernel) == KERNEL_DONE);
  kernel_free(kernel);
  world_free(w);
}

static char plan_file[40];

static void run_for_plans(void) {
  setenv("NCCL4J_STANDIN_PLAN", plan_file, 1);
  setenv("NCCL4J_STANDIN_PLAN_ONLY", "1", 1);
  run_again((char *[]){program_invocation_name, "plans", NULL});
}

static void test_plans(void) {
  static const char expected[] =
      "rank 1 ranks 2 nodes 1 blocks 2 channel 0 function AllReduce type float16 algorithm TREE protocol LL operator "
      "MinMax"
      " warps 16 channels 0-1 offset 0 count 1000 part 700 chunk 16 direct 0 registered 0 root 0"
      " ring 1,0 tree-up 0 tree-down -1,-1,-1\n"
      "rank 1 ranks 2 nodes 1 blocks 2 channel 1 function AllReduce type float16 algorithm TREE protocol LL operator "
      "MinMax"
      " warps 16 channels 0-1 offset 700 count 1000 part 300 chunk 8 direct 0 registered 0 root 0"
      " ring 1,0 tree-up 0 tree-down -1,-1,-1\n"
      "rank 1 ranks 2 nodes 1 blocks 2 channel 0 function SendRecv send 0 send-offset 0 send-part 4096 send-chunk 4096"
      " send-protocol LL send-registered 0 ring 1,0 tree-up 0 tree-down -1,-1,-1\n"
      "rank 1 ranks 2 nodes 1 blocks 2 channel 1 function SendRecv send 0 send-offset 4096 send-part 1904 send-chunk "
      "4096"
      " send-protocol LL send-registered 0 ring 1,0 tree-up 0 tree-down -1,-1,-1\n";
  char text[sizeof expected + 100];
  int file = memfd_create("plan", 0), status;
  CHECK(file >= 0);
  snprintf(plan_file, sizeof plan_file, "/proc/self/fd/%d", file);
  run_child(run_for_plans, &status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(refuses_variable("NCCL4J_STANDIN_PLAN_ONLY", "true", "a number from 0 to 1"));
  CHECK(refuses_variable("NCCL4J_STANDIN_PLAN", "/no/such/file", "a file that can be written to"));
  ssize_t length = read(file, text, sizeof text - 1);
  CHECK(length >= 0);
  text[length] = 0;
  close(file);
  if (strcmp(text, expected) != 0) fprintf(stderr, "the plans are:\n%s", text);
  CHECK(strcmp(text, expected) == 0);
}

int main(int count, char **words) {
  if (count > 1) {
    write_plans();
    return 0;
  }
  test_other_release();
  test_function_numbers();
  test_registered_kernels();
  test_sends_and_receives();
  test_proxies();
  test_registered_buffers();
  test_foreign_addresses();
  if (BROADCASTS) test_broadcasts();
  test_batches();
  test_abort();
  test_freed_memory();
  test_refusals();
  test_plans();
  (void)words;
  printf("p2p: passed\n");
  return 0;
}
