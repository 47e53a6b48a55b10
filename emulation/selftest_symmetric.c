/* Tests of the kernels for symmetric memory, on windows built by hand; see README.md. */
#include "selftest_communicator.h"

#include <math.h>
#include <sys/mman.h>

#define STRIDE (UINT64_C(1) << 32) /* between the windows of two ranks */
#define OWN_BYTES (1 << 20)        /* of the communicator's own window, after which the user's begins */
#define USER_BYTES (1 << 20)
#define BLOCKS 3
#define SLOTS_OF_RANK 512
#define LINES_HANDLE 32 /* in 128 bytes */
#define OUTPUT (USER_BYTES / 2)

/* The parameter, as far as the kernels read it. */
struct symmetric_arguments {
#if RELEASE >= 22900
  uint32_t magic, version;
#endif
  int rank, ranks;
  uint32_t reciprocal;
  int local_rank, local_ranks;
  char unused1[28];
  char *base;
  char unused2[8];
  uint32_t stride;
  char unused3[52];
  uint32_t barrier;
  int barriers;
  char unused4[72];
#if RELEASE >= 22900
  uint32_t *abort;
  char unused5[24];
#endif
  uint32_t lines, slots;
#if RELEASE >= 22900
  char unused6[40];
#endif
  int blocks;
  char unused7[12];
};

struct range {
  uint16_t last, fraction;
};

struct work {
  uint64_t argument;
  size_t count;
  struct window *input_window, *output_window;
  size_t input, output;
#if RELEASE >= 22900
  int root;
  uint16_t first_block, block_count;
  uint64_t padding;
#else
  uint64_t root;
  uint16_t first_block, block_count;
  uint32_t padding;
#endif
};

struct window {
  void *host;
  char *base;
  int local_rank, world_rank;
  uint32_t stride;
};

_Static_assert(sizeof(struct symmetric_arguments) == (RELEASE >= 22900 ? 304 : 224), "arguments");
_Static_assert(offsetof(struct symmetric_arguments, base) == (RELEASE >= 22900 ? 56 : 48), "arguments");
_Static_assert(offsetof(struct symmetric_arguments, barrier) == (RELEASE >= 22900 ? 128 : 120), "arguments");
_Static_assert(offsetof(struct symmetric_arguments, lines) == (RELEASE >= 22900 ? 240 : 200), "arguments");
_Static_assert(offsetof(struct symmetric_arguments, blocks) == (RELEASE >= 22900 ? 288 : 208), "arguments");
_Static_assert(offsetof(struct work, first_block) == (RELEASE >= 22900 ? 52 : 56), "works");
_Static_assert(sizeof(struct work) == 64 && offsetof(struct window, stride) == 24, "works");

static char *memory; /* the windows of all ranks */
static uint32_t aborted;

static char *user(int rank) { return memory + (uint64_t)rank * STRIDE + OWN_BYTES; }

static void map_windows(int ranks) {
  memory = mmap(NULL, (size_t)ranks * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  for (int r = 0; r < ranks; r++)
    CHECK(mprotect(memory + (uint64_t)r * STRIDE, OWN_BYTES + USER_BYTES, PROT_READ | PROT_WRITE) == 0);
}

static void unmap_windows(int ranks) { CHECK(munmap(memory, (size_t)ranks * STRIDE) == 0); }

struct launch_of_works {
  const char *name;
  int ranks, blocks, works;
  struct range ranges[BLOCKS];
  struct work work[2];
};

static struct kernel *launch_rank(const struct launch_of_works *l, int rank) {
  static struct window windows[RANKS_MOST];
  _Alignas(16) char bytes[1024] = {0};
  windows[rank] = (struct window){.base = memory + OWN_BYTES, .local_rank = rank, .stride = 1};
  struct symmetric_arguments arguments = {
      .rank = rank,
      .ranks = l->ranks,
      .local_rank = rank,
      .local_ranks = l->ranks,
      .base = memory,
      .stride = 1,
      .barriers = BLOCKS,
#if RELEASE >= 22900
      .abort = &aborted,
#endif
      .lines = LINES_HANDLE,
      .slots = (uint32_t)(l->ranks * SLOTS_OF_RANK),
      .blocks = BLOCKS,
  };
  size_t used = sizeof arguments;
  memcpy(bytes, &arguments, used);
  memcpy(bytes + used, l->ranges, sizeof l->ranges);
  used += 16;
  for (int i = 0; i < l->works; i++, used += sizeof *l->work) {
    struct work work = l->work[i];
    if (work.block_count == 0) work.first_block = 0xffff;
    if (work.input_window == NULL) work.input_window = &windows[rank];
    if (work.output_window == NULL) work.output_window = &windows[rank];
    memcpy(bytes + used, &work, sizeof work);
  }
  struct kernel_shape shape = {.grid = {(unsigned)l->blocks, 1, 1}, .block = {512, 1, 1}};
  return kernel_new(l->name, &shape, bytes, used, 0);
}

static void run_launch(const struct launch_of_works *l, unsigned seed) {
  struct kernel *kernels[RANKS_MOST];
  for (int r = 0; r < l->ranks; r++) kernels[r] = launch_rank(l, r);
  run_all(kernels, l->ranks, seed, NULL, NULL);
}

/* Divides the only work between the blocks. */
static void divide(struct launch_of_works *l, int blocks) {
  l->blocks = blocks;
  for (int i = 0; i < blocks; i++) l->ranges[i] = (struct range){0, (uint16_t)(0x10000 * (i + 1) / blocks - 1)};
}

/* ---- float32 ---- */

enum { ALL_REDUCES, ALL_GATHERS, REDUCE_SCATTERS };

static const char *const names[3][2] = {{"_Z1ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f3221ncclSymkDevWorkArgs4K",
                                         "_Z1ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f3221ncclSymkDevWorkArgs4K"},
                                        {"_Z1ncclSymkDevKernel_AllGather_LL21ncclSymkDevWorkArgs4K",
                                         "_Z1ncclSymkDevKernel_AllGather_ST21ncclSymkDevWorkArgs4K"},
                                        {"_Z1ncclSymkDevKernel_ReduceScatter_LL_sum_f3221ncclSymkDevWorkArgs4K",
                                         "_Z1ncclSymkDevKernel_ReduceScatter_LD_sum_f3221ncclSymkDevWorkArgs4K"}};

static float value_at(int rank, size_t place) { return (float)((rank * 7 + (int)place * 3) % 61); }

static void fill(int ranks, size_t offset, size_t count) {
  for (int r = 0; r < ranks; r++)
    for (size_t i = 0; i < count; i++) ((float *)(user(r) + offset))[i] = value_at(r, i);
}

static float expected(int operation, int ranks, int rank, size_t count, size_t place) {
  if (operation == ALL_GATHERS) return value_at((int)(place / count), place % count);
  float sum = 0;
  for (int r = 0; r < ranks; r++) sum += value_at(r, place + (operation == REDUCE_SCATTERS ? (size_t)rank * count : 0));
  return sum;
}

static void check_output(int operation, int ranks, size_t offset, size_t count) {
  size_t all = operation == ALL_GATHERS ? count * (size_t)ranks : count;
  for (int r = 0; r < ranks; r++) {
    const float *output = (float *)(user(r) + offset);
    for (size_t i = 0; i < all; i++) CHECK(output[i] == expected(operation, ranks, r, count, i));
    CHECK(isnan(output[all]));
  }
}

static void clear_output(int ranks) {
  for (int r = 0; r < ranks; r++) memset(user(r) + OUTPUT, 0xff, OUTPUT);
}

static void test_operations(void) {
  static const size_t counts[] = {1, 7, 1000, 5003, 20000};
  unsigned seed = 1;
  for (int ranks = 2; ranks <= 5; ranks++) {
    map_windows(ranks);
    for (int operation = ALL_REDUCES; operation <= REDUCE_SCATTERS; operation++)
      for (int loads = 0; loads < 2; loads++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
          for (int blocks = 1; blocks <= BLOCKS; blocks++, seed++) {
            size_t count = counts[c], input = seed % 3 * 4, output = OUTPUT + seed % 2 * 4;
            if (count / 256 + 1 < (size_t)blocks) continue; /* fewer cells than blocks */
            struct launch_of_works l = {.name = names[operation][loads], .ranks = ranks, .works = 1};
            divide(&l, blocks);
            l.work[0] =
                (struct work){.count = operation == ALL_GATHERS ? 4 * count : count, .input = input, .output = output};
            clear_output(ranks);
            fill(ranks, input, count * (size_t)(operation == REDUCE_SCATTERS ? ranks : 1));
            run_launch(&l, seed);
            check_output(operation, ranks, output, count);
          }
    unmap_windows(ranks);
  }
}

/* Two works: the first is of one block and a part of another; or two blocks execute one of the works together. */
static void test_works(void) {
  for (int operation = ALL_REDUCES; operation <= REDUCE_SCATTERS; operation++)
    for (int together = 0; together < 3; together++) { /* 1: the first work; 2: the second one */
      size_t first = 9000, second = 5000, unit = operation == ALL_GATHERS ? 4 : 1;
      struct launch_of_works l = {.name = names[operation][1], .ranks = 3, .blocks = 3, .works = 2};
      static const struct range ends[3][3] = {{{0, 0x7fff}, {1, 0x3fff}, {1, 0xffff}},
                                              {{0, 0x7fff}, {0, 0xffff}, {1, 0xffff}},
                                              {{0, 0xffff}, {1, 0x7fff}, {1, 0xffff}}};
      memcpy(l.ranges, ends[together], sizeof l.ranges);
      l.work[0] = (struct work){.count = first * unit, .input = 0, .output = OUTPUT};
      l.work[1] = (struct work){.count = second * unit, .input = 4 * 3 * first, .output = OUTPUT + 4 * 3 * first + 64};
      if (together == 1) l.work[0].block_count = 2;
      if (together == 2) l.work[1].first_block = 1, l.work[1].block_count = 2;
      map_windows(3);
      clear_output(3);
      fill(3, l.work[0].input, 3 * first);
      fill(3, l.work[1].input, 3 * second);
      run_launch(&l, 3);
      check_output(operation, 3, l.work[0].output, first);
      check_output(operation, 3, l.work[1].output, second);
      unmap_windows(3);
    }
}

/* One of two blocks alone does only its part, whether each has its own or they execute the work together. */
static void test_one_block(void) {
  for (int operation = ALL_REDUCES; operation <= REDUCE_SCATTERS; operation++)
    for (int together = 0; together < 2; together++) {
      size_t count = 24576, written = 0, all = operation == ALL_GATHERS ? 2 * count : count;
      struct launch_of_works l = {.name = names[operation][1], .ranks = 2, .blocks = 1, .works = 1};
      l.ranges[0] = (struct range){0, 0x7fff};
      l.ranges[1] = (struct range){0, 0xffff};
      l.work[0] = (struct work){.count = operation == ALL_GATHERS ? 4 * count : count,
                                .output = OUTPUT,
                                .block_count = together ? 2 : 0};
      map_windows(2);
      clear_output(2);
      fill(2, 0, 2 * count);
      run_launch(&l, 1);
      const float *output = (float *)(user(1) + OUTPUT);
      for (size_t i = 0; i < all; i++) {
        if (isnan(output[i])) continue;
        CHECK(output[i] == expected(operation, 2, 1, count, i));
        CHECK(together || i % count < count / 2);
        written++;
      }
      CHECK(written == all / 2);
      unmap_windows(2);
    }
}

/* No rank reads or writes before all have begun, and none ends before all have read and written. */
static void test_barriers(void) {
  map_windows(2);
  clear_output(2);
  for (int round = 0; round < 3; round++) {
    struct kernel *kernels[2];
    struct launch_of_works l = {.name = names[ALL_REDUCES][1], .ranks = 2, .works = 1};
    divide(&l, 1);
    l.work[0] = (struct work){.count = 100, .output = OUTPUT + (size_t)round * 400};
    fill(2, 0, 100);
    for (int r = 0; r < 2; r++) kernels[r] = launch_rank(&l, r);
    CHECK(kernel_poll(kernels[0]) == KERNEL_MOVED && kernel_poll(kernels[0]) == KERNEL_WAITS);
    CHECK(isnan(*(float *)(user(0) + l.work[0].output)) && isnan(*(float *)(user(1) + l.work[0].output)));
    CHECK(kernel_poll(kernels[1]) == KERNEL_MOVED && kernel_poll(kernels[1]) == KERNEL_WAITS);
    CHECK(kernel_poll(kernels[0]) == KERNEL_DONE);
    CHECK(kernel_poll(kernels[1]) == KERNEL_DONE);
    check_output(ALL_REDUCES, 2, l.work[0].output, 100);
    for (int r = 0; r < 2; r++) kernel_free(kernels[r]);
  }
  unmap_windows(2);
}

/* The rank that reduces an element begins with its own value: 1e8, 1 and -1e8 give 1 if the last rank does, else 0. */
static void test_order(void) {
  static const float values[] = {1e8f, 1, -1e8f};
  for (int large = 0; large < 2; large++) {
    size_t count = large ? 6144 : 1000, unit = large ? 512 : 32; /* elements that a rank takes in turn */
    struct launch_of_works l = {.name = names[ALL_REDUCES][1], .ranks = 3, .works = 1};
    divide(&l, 1);
    l.work[0] = (struct work){.count = count, .output = OUTPUT};
    map_windows(3);
    for (int r = 0; r < 3; r++)
      for (size_t i = 0; i < count; i++) ((float *)user(r))[i] = values[r];
    run_launch(&l, 1);
    for (size_t i = 0; i < count; i++) CHECK(((float *)(user(0) + OUTPUT))[i] == (i / unit % 3 == 2 ? 1 : 0));
    unmap_windows(3);
  }
}

/* ---- small floats ---- */

/* 2048 + 1 + 1 is 2050 in float32 but 2048 if every sum is rounded to float16; the averages multiply by a half. */
static void test_rounding(void) {
  static const struct {
    const char *name;
    uint64_t argument;
    int bytes;
    uint16_t values[3], result;
  } cases[] = {
      {"_Z1ncclSymkDevKernel_ReduceScatter_LD_sum_f1621ncclSymkDevWorkArgs4K", 0, 2, {0x6800, 0x3c00, 0x3c00}, 0x6801},
      {"_Z1ncclSymkDevKernel_ReduceScatter_LL_sum_f1621ncclSymkDevWorkArgs4K", 0, 2, {0x6800, 0x3c00, 0x3c00}, 0x6801},
      {"_Z1ncclSymkDevKernel_ReduceScatter_LD_avg_f1621ncclSymkDevWorkArgs4K",
       0x3f000000,
       2,
       {0x6800, 0x3c00, 0x3c00},
       0x6401},
      {"_Z1ncclSymkDevKernel_ReduceScatter_LL_sum_bf1621ncclSymkDevWorkArgs4K", 0, 2, {0x4380, 0x3f80, 0x3f80}, 0x4381},
      {"_Z1ncclSymkDevKernel_ReduceScatter_LD_sum_f8e4m321ncclSymkDevWorkArgs4K", 0, 1, {0x58, 0x38, 0x38}, 0x59},
      {"_Z1ncclSymkDevKernel_ReduceScatter_LD_avg_f8e5m221ncclSymkDevWorkArgs4K", 0x3800, 1, {0x3c, 0x3c, 0x40}, 0x40},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct launch_of_works l = {.name = cases[i].name, .ranks = 3, .works = 1};
    divide(&l, 1);
    l.work[0] = (struct work){.count = 1, .output = OUTPUT, .argument = cases[i].argument};
    map_windows(3);
    for (int r = 0; r < 3; r++) /* rank 0 gets the first element */
      memcpy(user(r), &cases[i].values[r], (size_t)cases[i].bytes);
    run_launch(&l, (unsigned)i);
    CHECK(memcmp(user(0) + OUTPUT, &cases[i].result, (size_t)cases[i].bytes) == 0);
    unmap_windows(3);
  }
}

/* ---- lines ---- */

/* The numbers of the epochs begin again after the largest one, without 0 and 1. */
static void test_epochs(void) {
  struct launch_of_works l = {.name = names[ALL_REDUCES][0], .ranks = 3, .works = 1};
  divide(&l, 1);
  map_windows(3);
  for (int r = 0; r < 3; r++) *(uint32_t *)(memory + (uint64_t)r * STRIDE + LINES_HANDLE * 128) = UINT32_MAX - 5;
  for (int i = 0; i < 12; i++) {
    l.work[0] = (struct work){.count = 3000, .output = OUTPUT}; /* three epochs */
    clear_output(3);
    fill(3, 0, 3000);
    run_launch(&l, (unsigned)i);
    check_output(ALL_REDUCES, 3, OUTPUT, 3000);
  }
  /* 36 epochs from UINT32_MAX - 3, of which two have no number. */
  CHECK(*(uint32_t *)(memory + LINES_HANDLE * 128) == (uint32_t)(UINT32_MAX - 5 + 36 + 2));
  unmap_windows(3);
}

/* Operands of kernels with lines need no window; their offsets are addresses. */
static void test_plain_memory(void) {
  float *input[2], *output[2];
  struct kernel *kernels[2];
  map_windows(2);
  for (int r = 0; r < 2; r++) {
    input[r] = device_memory(400);
    output[r] = device_memory(400);
    for (int i = 0; i < 100; i++) input[r][i] = value_at(r, (size_t)i);
  }
  for (int refused = 0; refused < 3; refused++) { /* read-only output, freed input */
    void *read_only = refused == 1 ? read_only_memory() : NULL;
    for (int r = 0; r < 2; r++) {
      _Alignas(16) char bytes[1024] = {0};
      struct symmetric_arguments arguments = {.rank = r,
                                              .ranks = 2,
                                              .local_rank = r,
                                              .local_ranks = 2,
                                              .base = memory,
                                              .stride = 1,
                                              .lines = LINES_HANDLE,
                                              .slots = 2 * SLOTS_OF_RANK,
                                              .blocks = 1};
      struct range range = {0, 0xffff};
      struct work work = {.count = 100,
                          .input = (size_t)(uintptr_t)input[r],
                          .output = (size_t)(uintptr_t)(read_only ? read_only : output[r]),
                          .first_block = 0xffff};
      memcpy(bytes, &arguments, sizeof arguments);
      memcpy(bytes + sizeof arguments, &range, sizeof range);
      memcpy(bytes + sizeof arguments + 16, &work, sizeof work);
      struct kernel_shape shape = {.grid = {1, 1, 1}, .block = {512, 1, 1}};
      kernels[r] = kernel_new(names[ALL_REDUCES][0], &shape, bytes, sizeof arguments + 16 + sizeof work, 0);
    }
    if (refused == 0) {
      run_all(kernels, 2, 4, NULL, NULL);
      for (int r = 0; r < 2; r++)
        for (int i = 0; i < 100; i++) CHECK(output[r][i] == expected(ALL_REDUCES, 2, r, 100, (size_t)i));
      continue;
    }
    for (int r = 0; r < 2; r++) {
      CHECK(kernel_poll(kernels[r]) == KERNEL_FAILED);
      kernel_free(kernels[r]);
      CHECK(cudaFree(refused == 1 ? input[r] : output[r]) == cudaSuccess);
    }
  }
  unmap_windows(2);
}

static void test_abort(void) {
  map_windows(2);
  for (int loads = 0; loads < 2; loads++) {
    struct launch_of_works l = {.name = names[ALL_REDUCES][loads], .ranks = 2, .works = 1};
    divide(&l, 1);
    l.work[0] = (struct work){.count = 100, .output = OUTPUT};
    struct kernel *kernel = launch_rank(&l, 0);
    CHECK(kernel_poll(kernel) == KERNEL_MOVED && kernel_poll(kernel) == KERNEL_WAITS);
    aborted = 1;
    CHECK(kernel_poll(kernel) == KERNEL_DONE);
    aborted = 0;
    kernel_free(kernel);
  }
  unmap_windows(2);
}

int main(void) {
  test_operations();
  test_works();
  test_one_block();
  test_barriers();
  test_order();
  test_rounding();
  test_epochs();
  test_plain_memory();
  if (RELEASE >= 22900) test_abort();
  printf("symmetric: passed\n");
  return 0;
}
