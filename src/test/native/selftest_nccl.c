/*
 * The test of the stand-in's NCCL, of the behaviour that the Java contract suite relies on. Ranks are threads, each with a
 * device, a stream and a communicator. Prints one line per case and stops at the first wrong value.
 */
#include "standin.h"

#define CHECK_DETAIL ncclGetLastError(NULL)
#include "selftest_check.h"

#include <math.h>
#include <pthread.h>

#define MAX_RANKS 17
#define LIMIT_SECONDS 60

/* ---- ranks as threads ---- */

struct rank {
  int rank, ranks;
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  void (*body)(struct rank *);
  ncclConfig_t *config;
  pthread_barrier_t *barrier;
};

static void *rank_main(void *argument) {
  struct rank *r = argument;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclCommInitRankConfig(&r->comm, r->ranks, r->id, r->rank, r->config));
  r->body(r);
  OK(cudaStreamSynchronize(r->stream));
  OK(ncclCommFinalize(r->comm));
  OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void on_threads(int ranks, void *(*start)(void *), void (*body)(struct rank *), ncclConfig_t *config) {
  struct rank all[MAX_RANKS];
  pthread_t threads[MAX_RANKS];
  pthread_barrier_t barrier;
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  pthread_barrier_init(&barrier, NULL, (unsigned)ranks);
  for (int i = 0; i < ranks; i++) {
    all[i] = (struct rank){.rank = i, .ranks = ranks, .id = id, .body = body, .config = config, .barrier = &barrier};
    pthread_create(&threads[i], NULL, start, &all[i]);
  }
  for (int i = 0; i < ranks; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}

/* Waits until a counter has reached a value. */
#define AWAIT(value, counter)                                                                      \
  do {                                                                                             \
    for (int i = 0; i < LIMIT_SECONDS * 1000 && (counter) != (value); i++) usleep(1000);           \
    SAME(value, counter);                                                                          \
  } while (0)

/* ---- values ---- */

static size_t size_of(ncclDataType_t t) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[t];
}

/* Small integers, exact in every type; the encodings are written by hand, independent of the library's conversion. */
static void put(ncclDataType_t t, void *to, size_t i, int value) {
  static const uint16_t halves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
  static const uint16_t brains[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
  static const uint8_t e4m3s[] = {0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50};
  static const uint8_t e5m2s[] = {0, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48};
  switch (t) {
    case ncclInt8:
    case ncclUint8: ((int8_t *)to)[i] = (int8_t)value; break;
    case ncclInt32:
    case ncclUint32: ((int32_t *)to)[i] = value; break;
    case ncclInt64:
    case ncclUint64: ((int64_t *)to)[i] = value; break;
    case ncclFloat16: ((uint16_t *)to)[i] = halves[value]; break;
    case ncclFloat32: ((float *)to)[i] = (float)value; break;
    case ncclFloat64: ((double *)to)[i] = value; break;
    case ncclBfloat16: ((uint16_t *)to)[i] = brains[value]; break;
    case ncclFloat8e4m3: ((uint8_t *)to)[i] = e4m3s[value]; break;
    case ncclFloat8e5m2: ((uint8_t *)to)[i] = e5m2s[value]; break;
    default: CHECK(!"known type");
  }
}

/* Inputs 1, 2 and 1 again, so that sums stay at most 8 for six ranks, and products powers of two. */
static int input(int rank, size_t i) { return (int)((rank + (int)i) % 4 == 0) + 1; }

static int expected(ncclRedOp_t op, int ranks, size_t i) {
  int sum = 0, product = 1, most = 0, least = 9;
  for (int r = 0; r < ranks; r++) {
    int x = input(r, i);
    sum += x;
    product *= x;
    most = x > most ? x : most;
    least = x < least ? x : least;
  }
  return op == ncclSum ? sum : op == ncclProd ? product : op == ncclMax ? most : least;
}

/* ---- cases ---- */

static void all_reduce_every_type(struct rank *r) {
  const size_t counts[] = {1, 3, 1000, 20011};
  for (int t = 0; t < ncclNumTypes; t++) {
    for (int op = ncclSum; op <= ncclMin; op++) {
      size_t count = counts[(t + op) % 4], bytes = count * size_of((ncclDataType_t)t);
      char *host = malloc(bytes), *wanted = malloc(bytes);
      void *send, *receive;
      OK(cudaMalloc(&send, bytes));
      OK(cudaMalloc(&receive, bytes));
      for (size_t i = 0; i < count; i++) {
        put((ncclDataType_t)t, host, i, input(r->rank, i));
        put((ncclDataType_t)t, wanted, i, expected((ncclRedOp_t)op, r->ranks, i));
      }
      OK(cudaMemcpyAsync(send, host, bytes, cudaMemcpyHostToDevice, r->stream));
      OK(ncclAllReduce(send, receive, count, (ncclDataType_t)t, (ncclRedOp_t)op, r->comm, r->stream));
      OK(cudaMemcpyAsync(host, receive, bytes, cudaMemcpyDeviceToHost, r->stream));
      OK(cudaStreamSynchronize(r->stream));
      CHECK(memcmp(host, wanted, bytes) == 0);
      OK(cudaFree(send));
      OK(cudaFree(receive));
      free(host);
      free(wanted);
    }
  }
}

static float reduce_one(struct rank *r, float mine, ncclRedOp_t op) {
  float *buffer, result;
  OK(cudaMalloc((void **)&buffer, sizeof *buffer));
  OK(cudaMemcpyAsync(buffer, &mine, sizeof mine, cudaMemcpyHostToDevice, r->stream));
  OK(ncclAllReduce(buffer, buffer, 1, ncclFloat32, op, r->comm, r->stream));
  OK(cudaMemcpyAsync(&result, buffer, sizeof result, cudaMemcpyDeviceToHost, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaFree(buffer));
  return result;
}

static uint64_t reduce_bits(struct rank *r, uint64_t mine, ncclDataType_t type, ncclRedOp_t op) {
  void *buffer;
  uint64_t result = 0;
  OK(cudaMalloc(&buffer, 8));
  OK(cudaMemcpyAsync(buffer, &mine, 8, cudaMemcpyHostToDevice, r->stream));
  OK(ncclAllReduce(buffer, buffer, 1, type, op, r->comm, r->stream));
  OK(cudaMemcpyAsync(&result, buffer, size_of(type), cudaMemcpyDeviceToHost, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaFree(buffer));
  return result;
}

static void arithmetic(struct rank *r) {
  bool first = r->rank == 0;
  CHECK(reduce_one(r, first ? NAN : 3, ncclMax) == 3);
  CHECK(reduce_one(r, first ? 2 : NAN, ncclMin) == 2);
  CHECK(isnan(reduce_one(r, NAN, ncclMin)));
  CHECK(reduce_one(r, first ? 1 : 4, ncclAvg) == 2.5f);
  SAME(0x80, reduce_bits(r, first ? 127 : 1, ncclInt8, ncclSum));                      /* wraps */
  SAME(0xff, reduce_bits(r, first ? 0xfe : 0xff, ncclInt8, ncclAvg));  /* (-2-1)/2 = -1, truncating */
  SAME(0x7e, reduce_bits(r, 0x7e, ncclFloat8e4m3, ncclSum));           /* 448+448 saturates */
  SAME(0x7b, reduce_bits(r, 0x7b, ncclFloat8e5m2, ncclProd));          /* overflows float16 on the way */
  SAME(0x7c00, reduce_bits(r, 0x7bff, ncclFloat16, ncclSum));          /* 65504+65504 */
  SAME(0x4000, reduce_bits(r, first ? 0x3c00 : 0x3c01, ncclFloat16, ncclSum)); /* 2.00097..: a tie, to even */
  SAME(0x4002, reduce_bits(r, first ? 0x3c01 : 0x3c02, ncclFloat16, ncclSum)); /* a tie, to even upwards */
  SAME(0x4000, reduce_bits(r, first ? 0x3f80 : 0x3f81, ncclBfloat16, ncclSum));
  SAME(0x0002, reduce_bits(r, 0x0001, ncclFloat16, ncclSum));          /* subnormal */
  SAME(0x02, reduce_bits(r, 0x01, ncclFloat8e4m3, ncclSum));

  ncclRedOp_t op, foreign = (ncclRedOp_t)2000000000;
  float scalar = first ? 2 : 10, *on_device;
  OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, r->comm));
  CHECK(reduce_one(r, first ? 1 : 3, op) == 32);
  SAME(ncclInvalidArgument, ncclAllReduce(&scalar, &scalar, 1, ncclFloat64, op, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclAllReduce(&scalar, &scalar, 1, ncclFloat32, foreign, r->comm, r->stream));
  OK(ncclRedOpDestroy(op, r->comm));
  SAME(ncclInvalidArgument, ncclRedOpDestroy(op, r->comm));
  SAME(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, r->comm));
  OK(ncclMemAlloc((void **)&on_device, sizeof scalar));
  OK(cudaMemcpy(on_device, &scalar, sizeof scalar, cudaMemcpyHostToDevice));
  OK(ncclRedOpCreatePreMulSum(&op, on_device, ncclFloat32, ncclScalarDevice, r->comm));
  CHECK(reduce_one(r, first ? 1 : 3, op) == 32);
  OK(ncclMemFree(on_device)); /* the operator is left to the communicator */
}

/* Every other collective once, with values that identify their origin. */
static void other_collectives(struct rank *r) {
  enum { N = 5 };
  const int n = r->ranks, me = r->rank, root = n - 1;
  int32_t *in, *out;
  size_t bytes = (size_t)(n * N) * sizeof *in;
  OK(cudaMallocHost((void **)&in, bytes));
  OK(cudaMallocHost((void **)&out, bytes));
  pthread_barrier_wait(r->barrier); /* pinning memory waits for every device */
  for (int i = 0; i < n * N; i++) in[i] = 1000 * me + i;
#define RUN(call)                                                                                  \
  memset(out, 0xff, bytes);                                                                        \
  OK(call);                                                                                        \
  OK(cudaStreamSynchronize(r->stream))
  RUN(ncclAllGather(in, out, N, ncclInt32, r->comm, r->stream));
  for (int i = 0; i < n * N; i++) SAME(1000 * (i / N) + i % N, out[i]);
  RUN(ncclBroadcast(me == root ? in : NULL, out, N, ncclInt32, root, r->comm, r->stream));
  for (int i = 0; i < N; i++) SAME(1000 * root + i, out[i]);
  RUN(ncclReduce(in, me == root ? out : NULL, N, ncclInt32, ncclSum, root, r->comm, r->stream));
  for (int i = 0; i < N; i++) SAME(me == root ? 1000 * n * (n - 1) / 2 + n * i : -1, out[i]);
  RUN(ncclReduceScatter(in, out, N, ncclInt32, ncclSum, r->comm, r->stream));
  for (int i = 0; i < N; i++) SAME(1000 * n * (n - 1) / 2 + n * (me * N + i), out[i]);
  RUN(ncclAlltoAll(in, out, N, ncclInt32, r->comm, r->stream));
  for (int i = 0; i < n * N; i++) SAME(1000 * (i / N) + me * N + i % N, out[i]);
  RUN(ncclGather(in, me == root ? out : NULL, N, ncclInt32, root, r->comm, r->stream));
  for (int i = 0; i < n * N; i++) SAME(me == root ? 1000 * (i / N) + i % N : -1, out[i]);
  RUN(ncclScatter(me == root ? in : NULL, out, N, ncclInt32, root, r->comm, r->stream));
  for (int i = 0; i < N; i++) SAME(1000 * root + me * N + i, out[i]);
  memcpy(out, in, bytes);
  OK(ncclBcast(out, N, ncclInt32, 0, r->comm, r->stream));
  OK(ncclReduceScatter(in, in + me * N, N, ncclInt32, ncclMax, r->comm, r->stream)); /* in place */
  OK(cudaStreamSynchronize(r->stream));
  for (int i = 0; i < N; i++) SAME(i, out[i]);
  for (int i = 0; i < N; i++) SAME(1000 * (n - 1) + me * N + i, in[me * N + i]);
  OK(cudaFreeHost(in));
  OK(cudaFreeHost(out));
}

/* An exchange of all ranks with all ranks in one group on two streams; a poisoned group. */
static void groups(struct rank *r) {
  const int n = r->ranks, me = r->rank;
  int32_t *in, *out;
  cudaStream_t second;
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaMallocHost((void **)&in, (size_t)n * 4));
  OK(cudaMallocHost((void **)&out, (size_t)n * 4));
  pthread_barrier_wait(r->barrier);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < n; i++) in[i] = 100 * me + i + round;
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    for (int p = 0; p < n; p++) {
      OK(ncclSend(in + p, 1, ncclInt32, p, r->comm, p % 2 ? second : r->stream));
      OK(ncclRecv(out + p, 1, ncclInt32, p, r->comm, r->stream));
    }
    OK(ncclGroupEnd());
    SAME(0, nccl4j_standin_calls("ncclCommRevoke"));
    OK(ncclGroupEnd());
    OK(cudaStreamSynchronize(second)); /* both streams wait for the whole group */
    for (int p = 0; p < n; p++) SAME(100 * p + me + round, out[p]);
  }
  OK(ncclGroupStart()); /* poisoned: nothing of it runs */
  OK(ncclAllReduce(in, in, 1, ncclInt32, ncclSum, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclSend(in, 1, ncclInt32, n, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclGroupEnd());
  SAME(ncclInvalidUsage, ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  SAME(100 * me + 19, in[0]);
  OK(cudaFreeHost(in));
  OK(cudaFreeHost(out));
  OK(cudaStreamDestroy(second));
}

/* Operations of one group have no order: maximum, then sum, on one buffer is [1, 2] on two GPUs too, not [2, 2]. */
static void group_has_no_order(struct rank *r) {
  const int n = r->ranks, me = r->rank;
  int32_t *values, *sent, *received;
  OK(cudaMallocHost((void **)&values, 8));
  OK(cudaMallocHost((void **)&sent, 8));
  OK(cudaMallocHost((void **)&received, 8));
  pthread_barrier_wait(r->barrier); /* pinning memory waits for every device */
  values[0] = me, values[1] = 1;
  OK(ncclGroupStart());
  OK(ncclAllReduce(values, values, 2, ncclInt32, ncclMax, r->comm, r->stream));
  OK(ncclAllReduce(values, values, 2, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  SAME(n * (n - 1) / 2, values[0]);
  SAME(n, values[1]);

  sent[0] = 10 * me, sent[1] = 10 * me + 1; /* messages are matched in the order of the calls */
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclSend(sent + i, 1, ncclInt32, (me + 1) % n, r->comm, r->stream));
  for (int i = 0; i < 2; i++) OK(ncclRecv(received + i, 1, ncclInt32, (me + n - 1) % n, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  for (int i = 0; i < 2; i++) SAME(10 * ((me + n - 1) % n) + i, received[i]);

  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclSend(sent + i, 1, ncclInt32, (me + 1) % n, r->comm, r->stream));
  for (int i = 0; i < 2; i++) OK(ncclRecv(received, 1, ncclInt32, (me + n - 1) % n, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  SAME(10 * ((me + n - 1) % n), received[0]); /* the first message was moved last */
  pthread_barrier_wait(r->barrier);
  OK(cudaFreeHost(values));
  OK(cudaFreeHost(sent));
  OK(cudaFreeHost(received));
}

static void splits(struct rank *r) {
  ncclComm_t part, none;
  int count, rank;
  OK(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &part, NULL));
  OK(ncclCommCount(part, &count));
  OK(ncclCommUserRank(part, &rank));
  int expected_count = (r->ranks + 1 - r->rank % 2) / 2;
  SAME(expected_count, count);
  SAME(expected_count - 1 - r->rank / 2, rank);
  struct rank inner = *r;
  inner.comm = part;
  float sum = 0;
  for (int q = r->rank % 2; q < r->ranks; q += 2) sum += (float)q;
  CHECK(reduce_one(&inner, (float)r->rank, ncclSum) == sum);
  OK(ncclCommSplit(r->comm, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, 0, &none, NULL));
  CHECK((none == NULL) == (r->rank == 0));
  OK(ncclCommDestroy(part));
  OK(ncclCommDestroy(none));
}

static void graphs(struct rank *r) {
  float *value, result = 0;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStream_t fork;
  cudaEvent_t forked, joined;
  size_t nodes = 0;
  OK(cudaStreamCreateWithFlags(&fork, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  OK(cudaMalloc((void **)&value, 2 * sizeof *value));
  OK(cudaMemset(value, 0, 2 * sizeof *value));
  float one = 1;
  OK(cudaMemcpy(value, &one, sizeof one, cudaMemcpyHostToDevice));
  pthread_barrier_wait(r->barrier);
  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  OK(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(cudaEventRecord(forked, r->stream));
  OK(cudaStreamWaitEvent(fork, forked, 0));
  OK(cudaMemcpyAsync(value + 1, value, sizeof *value, cudaMemcpyDeviceToDevice, fork));
  OK(cudaEventRecord(joined, fork));
  OK(cudaStreamWaitEvent(r->stream, joined, 0));
  OK(cudaStreamEndCapture(r->stream, &graph));
  OK(cudaGraphGetNodes(graph, NULL, &nodes));
  SAME(2, nodes);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, r->stream));
  OK(cudaMemcpyAsync(&result, value + 1, sizeof result, cudaMemcpyDeviceToHost, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  CHECK(result == powf((float)r->ranks, 3));
  OK(cudaGraphExecDestroy(exec));
  pthread_barrier_wait(r->barrier);

  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  SAME(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(r->stream));
  SAME(cudaErrorStreamCaptureInvalidated, cudaMemsetAsync(value, 0, 4, r->stream));
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(r->stream, &graph));
  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  void *more;
  SAME(cudaErrorStreamCaptureUnsupported, cudaMalloc(&more, 16));
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(r->stream, &graph));
  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(forked, r->stream));
  OK(cudaStreamWaitEvent(fork, forked, 0));
  OK(cudaMemsetAsync(value, 0, 4, fork));
  SAME(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(fork, &graph));
  SAME(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(r->stream, &graph));
  SAME(cudaErrorIllegalState, cudaStreamEndCapture(r->stream, &graph));
  OK(cudaFree(value));
  OK(cudaEventDestroy(forked));
  OK(cudaEventDestroy(joined));
  OK(cudaStreamDestroy(fork));
}

static int sum_of_ones(ncclComm_t comm, cudaStream_t stream);

/* Rank 0's collective waits for a rank that never calls; an abort unblocks the stream. */
static void *stuck_main(void *argument) {
  struct rank *r = argument;
  float *value;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclCommInitRank(&r->comm, r->ranks, r->id, r->rank));
  OK(cudaMalloc((void **)&value, 4));
  SAME(r->ranks, sum_of_ones(r->comm, r->stream)); /* connects */
  if (r->rank == 0) {
    for (int i = 0; i < 3; i++) OK(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, r->comm, r->stream));
    usleep(20000);
    SAME(cudaErrorNotReady, cudaStreamQuery(r->stream));
    cudaGetLastError();
  }
  OK(ncclCommAbort(r->comm));
  OK(cudaStreamSynchronize(r->stream));
  SAME(ncclInvalidArgument, ncclCommDestroy(r->comm));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

/* Allocates on device 1 while the stream of device 0 is blocked; `done` counts the steps. */
static atomic_int done;
static void *busy_neighbour(void *blocked) {
  void *own, *pinned;
  OK(cudaSetDevice(1));
  OK(cudaMalloc(&own, 16));
  OK(cudaFree(own));
  atomic_store(&done, 1);
  OK(cudaMallocHost(&pinned, 16)); /* waits for device 0 too */
  atomic_store(&done, 2);
  OK(cudaFreeHost(pinned));
  OK(cudaSetDevice(0));
  OK(cudaFree(blocked));
  atomic_store(&done, 3);
  return NULL;
}

static void block(void *open) {
  while (!atomic_load((atomic_int *)open)) usleep(1000);
}

static void allocation_waits(void) {
  static atomic_int open;
  cudaStream_t stream;
  void *memory;
  pthread_t neighbour;
  OK(cudaSetDevice(0));
  OK(cudaMalloc(&memory, 16));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaLaunchHostFunc(stream, block, &open));
  pthread_create(&neighbour, NULL, busy_neighbour, memory);
  AWAIT(1, atomic_load(&done));
  usleep(50000);
  SAME(1, atomic_load(&done));
  OK(cudaMemsetAsync(memory, 0, 16, stream)); /* other threads can launch meanwhile */
  SAME(cudaErrorNotReady, cudaStreamQuery(stream));
  cudaGetLastError();
  atomic_store(&open, 1);
  pthread_join(neighbour, NULL);
  SAME(3, atomic_load(&done));
  OK(cudaStreamDestroy(stream));
}

/* Queries a stream in each capture mode while another thread captures in global mode. */
static void *query_in_mode(void *mode) {
  cudaStream_t stream;
  enum cudaStreamCaptureMode own = *(enum cudaStreamCaptureMode *)mode, before = own;
  OK(cudaThreadExchangeStreamCaptureMode(&before));
  SAME(cudaStreamCaptureModeGlobal, before);
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  SAME(own == cudaStreamCaptureModeGlobal ? cudaErrorStreamCaptureUnsupported : cudaSuccess, cudaStreamQuery(stream));
  OK(cudaStreamDestroy(stream));
  return NULL;
}

static void capture_modes(void) {
  for (int mode = cudaStreamCaptureModeGlobal; mode <= cudaStreamCaptureModeRelaxed; mode++) {
    enum cudaStreamCaptureMode other = (enum cudaStreamCaptureMode)mode;
    cudaStream_t stream;
    cudaGraph_t graph;
    pthread_t thread;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    pthread_create(&thread, NULL, query_in_mode, &other);
    pthread_join(thread, NULL);
    bool invalidated = other == cudaStreamCaptureModeGlobal;
    SAME(invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess, cudaStreamEndCapture(stream, &graph));
    if (!invalidated) OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
  }
}

static void *on_device_three(void *nothing) {
  int device, attribute;
  OK(cudaGetDevice(&device));
  OK(cudaDeviceGetAttribute(&attribute, cudaDevAttrWarpSize, 3));
  SAME(0, nccl4j_standin_context(device));
  OK(cudaSetDevice(3));
  SAME(1, nccl4j_standin_context(3));
  SAME(0, nccl4j_standin_context(0));
  return nothing;
}

static void contexts(void) {
  pthread_t fresh;
  SAME(-1, nccl4j_standin_context(MAX_RANKS));
  pthread_create(&fresh, NULL, on_device_three, NULL);
  pthread_join(fresh, NULL);
}

static void *mismatch_main(void *argument) {
  struct rank *r = argument;
  float *value;
  ncclResult_t error;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreate(&r->stream));
  OK(ncclCommInitRank(&r->comm, r->ranks, r->id, r->rank));
  OK(cudaMalloc((void **)&value, 8));
  OK(ncclAllReduce(value, value, r->rank == 0 ? 1 : 2, ncclFloat32, ncclSum, r->comm, r->stream));
  SAME(cudaErrorLaunchFailure, cudaStreamSynchronize(r->stream));
  OK(ncclCommGetAsyncError(r->comm, &error));
  SAME(ncclInvalidUsage, error);
  SAME(ncclInvalidUsage, ncclCommDestroy(r->comm)); /* only abort is possible */
  OK(ncclCommAbort(r->comm));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state;
  do {
    OK(ncclCommGetAsyncError(comm, &state));
    if (state == ncclInProgress) usleep(200);
  } while (state == ncclInProgress);
  return state;
}

static void *non_blocking_main(void *argument) {
  struct rank *r = argument;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  float *value, one = 1, result;
  int count;
  ncclComm_t child;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreate(&r->stream));
  OK(cudaMalloc((void **)&value, 4));
  OK(cudaMemcpy(value, &one, 4, cudaMemcpyHostToDevice));
  SAME(ncclInProgress, ncclCommInitRankConfig(&r->comm, r->ranks, r->id, r->rank, &config));
  if (r->rank == 0) SAME(ncclInvalidArgument, ncclCommCount(r->comm, &count)); /* kept in progress by main */
  OK(settled(r->comm));
  OK(ncclCommCount(r->comm, &count));
  SAME(r->ranks, count);
  SAME(ncclInProgress, ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, r->comm, r->stream));
  OK(settled(r->comm));
  SAME(ncclInProgress, ncclCommSplit(r->comm, 0, 0, &child, NULL));
  CHECK(child == NULL);
  OK(settled(r->comm));
  CHECK(child != NULL);
  OK(settled(child));
  OK(cudaMemcpyAsync(&result, value, 4, cudaMemcpyDeviceToHost, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  CHECK(result == (float)r->ranks);
  OK(ncclCommAbort(child));
  SAME(ncclInProgress, ncclCommFinalize(r->comm));
  OK(settled(r->comm));
  OK(ncclCommDestroy(r->comm));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void rank_never_arrives(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  ncclComm_t comms[2];
  ncclResult_t state;
  OK(ncclGetUniqueId(&id));
  nccl4j_standin_absent(1);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    OK(cudaSetDevice(i));
    OK(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
  }
  SAME(ncclInProgress, ncclGroupEnd());
  usleep(20000);
  OK(ncclCommGetAsyncError(comms[0], &state));
  SAME(ncclInProgress, state);
  for (int i = 0; i < 2; i++) OK(ncclCommAbort(comms[i]));
}

static void rank_fails(void) {
  ncclComm_t comms[3];
  cudaStream_t streams[3];
  void *values[3];
  ncclResult_t state;
  OK(ncclCommInitAll(comms, 3, NULL));
  OK(ncclGroupStart()); /* connects */
  for (int i = 0; i < 3; i++) {
    OK(cudaSetDevice(i));
    OK(cudaStreamCreate(&streams[i]));
    OK(cudaMalloc(&values[i], 4));
    OK(ncclAllReduce(values[i], values[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
  }
  OK(ncclGroupEnd());
  for (int i = 0; i < 3; i++) OK(cudaStreamSynchronize(streams[i]));
  OK(nccl4j_standin_rank_fails(comms[0], 2, ncclRemoteError));
  for (int i = 0; i < 2; i++) OK(ncclAllReduce(values[i], values[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
  OK(ncclCommGetAsyncError(comms[2], &state));
  SAME(ncclRemoteError, state);
  usleep(20000);
  for (int i = 0; i < 2; i++) SAME(cudaErrorNotReady, cudaStreamQuery(streams[i]));
  for (int i = 0; i < 3; i++) OK(ncclCommAbort(comms[i]));
  for (int i = 0; i < 3; i++) {
    OK(cudaStreamSynchronize(streams[i]));
    OK(cudaStreamDestroy(streams[i]));
    OK(cudaFree(values[i]));
  }
}

/* One thread, all ranks, also when captured in one graph across devices. */
static void one_thread_drives_all(void) {
  enum { N = 4 };
  ncclComm_t comms[N];
  cudaStream_t streams[N];
  cudaEvent_t events[N], fork;
  int32_t *values[N];
  OK(ncclCommInitAll(comms, N, NULL));
  for (int i = 0; i < N; i++) {
    OK(cudaSetDevice(i));
    OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    OK(cudaEventCreate(&events[i]));
    OK(cudaMallocManaged((void **)&values[i], 4, cudaMemAttachGlobal));
    *values[i] = i + 1;
  }
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) OK(ncclAllReduce(values[i], values[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
  OK(ncclGroupEnd());
  for (int i = 0; i < N; i++) OK(cudaStreamSynchronize(streams[i]));
  for (int i = 0; i < N; i++) SAME(10, *values[i]);

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaSetDevice(0));
  OK(cudaEventCreate(&fork));
  OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
  OK(cudaEventRecord(fork, streams[0]));
  for (int i = 1; i < N; i++) OK(cudaStreamWaitEvent(streams[i], fork, 0));
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) OK(ncclAllReduce(values[i], values[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
  OK(ncclGroupEnd());
  for (int i = 1; i < N; i++) {
    OK(cudaEventRecord(events[i], streams[i]));
    OK(cudaStreamWaitEvent(streams[0], events[i], 0));
  }
  OK(cudaStreamEndCapture(streams[0], &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, streams[0]));
  OK(cudaGraphLaunch(exec, streams[0]));
  OK(cudaStreamSynchronize(streams[0]));
  for (int i = 0; i < N; i++) SAME(160, *values[i]);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(ncclGroupStart());
  for (int i = 0; i < N; i++) OK(ncclCommDestroy(comms[i]));
  OK(ncclGroupEnd());
  for (int i = 0; i < N; i++) {
    OK(cudaStreamDestroy(streams[i]));
    OK(cudaEventDestroy(events[i]));
    OK(cudaFree(values[i]));
  }
}

/* Each kernel on a stream takes the set time, counted from the arrival of the last rank; an abort ends it. */
static void kernel_time(struct rank *r) {
  enum { KERNELS = 20, GROUPED = 200 };
  float *value, ms;
  cudaEvent_t start, end;
  OK(cudaMalloc((void **)&value, sizeof *value));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  if (r->rank == 0) nccl4j_standin_kernel_time(5000000);
  pthread_barrier_wait(r->barrier);
  OK(cudaEventRecord(start, r->stream));
  OK(cudaEventSynchronize(start));
  pthread_barrier_wait(r->barrier);
  if (r->rank == 1) usleep(20000); /* the first kernel of the others waits for this one */
  for (int i = 0; i < KERNELS; i++) OK(ncclAllReduce(value, value, 1, ncclFloat, ncclSum, r->comm, r->stream));
  OK(cudaEventRecord(end, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= KERNELS * 5 + 20);
  pthread_barrier_wait(r->barrier);
  if (r->rank == 0) nccl4j_standin_kernel_time(200000000);
  pthread_barrier_wait(r->barrier);
  OK(cudaEventRecord(start, r->stream));
  OK(ncclGroupStart()); /* a group is one kernel */
  for (int i = 0; i < GROUPED; i++) OK(ncclAllReduce(value, value, 1, ncclFloat, ncclSum, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaEventRecord(end, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 200 && ms < GROUPED * 200);
  pthread_barrier_wait(r->barrier);
  if (r->rank == 0) nccl4j_standin_kernel_time(INT64_C(3600000000000));
  pthread_barrier_wait(r->barrier);
  OK(ncclAllReduce(value, value, 1, ncclFloat, ncclSum, r->comm, r->stream));
  usleep(5000);
  SAME(cudaErrorNotReady, cudaStreamQuery(r->stream));
  pthread_barrier_wait(r->barrier);
  if (r->rank == 0) nccl4j_standin_kernel_time(0);
  OK(ncclCommAbort(r->comm));
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  OK(cudaFree(value));
}

static void *kernel_time_main(void *argument) {
  struct rank *r = argument;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclCommInitRank(&r->comm, r->ranks, r->id, r->rank));
  r->body(r);
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void set_to(void *flag) {
  usleep(10000);
  int count;
  atomic_store((atomic_int *)flag, cudaGetDeviceCount(&count) == cudaErrorNotPermitted ? 7 : 1);
}

static void streams_and_events(void) {
  atomic_int flag = 0;
  cudaStream_t a, b;
  cudaEvent_t start, end;
  float ms = -1;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreate(&b));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  SAME(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, end));
  OK(cudaEventRecord(start, a));
  OK(cudaLaunchHostFunc(a, set_to, &flag));
  OK(cudaEventRecord(end, a));
  SAME(cudaErrorNotReady, cudaEventQuery(end));
  OK(cudaStreamWaitEvent(b, end, 0));
  OK(cudaStreamSynchronize(b));
  SAME(7, flag);
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 9);
  atomic_store(&flag, 0);
  OK(cudaLaunchHostFunc(a, set_to, &flag)); /* the legacy stream waits for blocking streams */
  OK(cudaStreamSynchronize(cudaStreamLegacy));
  SAME(7, flag);
  atomic_store(&flag, 0);
  OK(cudaLaunchHostFunc(NULL, set_to, &flag)); /* and vice versa */
  OK(cudaEventRecord(end, b));
  OK(cudaEventSynchronize(end));
  SAME(7, flag);
  atomic_store(&flag, 0);
  OK(cudaLaunchHostFunc(cudaStreamPerThread, set_to, &flag));
  OK(cudaDeviceSynchronize());
  SAME(7, flag);
  atomic_store(&flag, 0);
  OK(cudaLaunchHostFunc(a, set_to, &flag));
  OK(cudaStreamDestroy(a)); /* drains asynchronously */
  SAME(cudaErrorInvalidResourceHandle, cudaStreamQuery(a));
  SAME(cudaErrorInvalidResourceHandle, cudaGetLastError());
  SAME(cudaSuccess, cudaPeekAtLastError());
  OK(cudaDeviceSynchronize());
  SAME(7, flag);
  OK(nccl4j_standin_fail_stream(b, cudaErrorLaunchFailure));
  SAME(cudaErrorLaunchFailure, cudaStreamSynchronize(b));
  SAME(cudaErrorLaunchFailure, cudaStreamQuery(b));
  OK(cudaStreamDestroy(b));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
}

static void memory_rules(void) {
  char *on_device, *pinned, pageable[64] = {0};
  size_t unused, total, left;
  struct cudaPointerAttributes attributes;
  OK(cudaSetDevice(3));
  OK(cudaMemGetInfo(&unused, &total));
  OK(cudaMalloc((void **)&on_device, 64));
  OK(cudaMallocHost((void **)&pinned, 64));
  OK(cudaMemGetInfo(&left, &total));
  SAME(unused - 64, left);
  OK(cudaPointerGetAttributes(&attributes, on_device + 10));
  SAME(cudaMemoryTypeDevice, attributes.type);
  SAME(3, attributes.device);
  OK(cudaPointerGetAttributes(&attributes, pinned));
  SAME(cudaMemoryTypeHost, attributes.type);
  OK(cudaPointerGetAttributes(&attributes, pageable));
  SAME(cudaMemoryTypeUnregistered, attributes.type);
  SAME(cudaErrorInvalidValue, cudaMemcpy(on_device, pageable, 65, cudaMemcpyHostToDevice));
  SAME(cudaErrorInvalidValue, cudaMemcpy(pageable, on_device, 64, cudaMemcpyHostToDevice));
  SAME(cudaErrorInvalidValue, cudaFree(pinned));
  SAME(cudaErrorInvalidValue, cudaFreeHost(on_device));
  SAME(cudaErrorInvalidValue, cudaFree(pageable));
  OK(cudaFree(on_device));
  SAME(cudaErrorInvalidValue, cudaFree(on_device));
  SAME(cudaErrorMemoryAllocation, cudaMalloc((void **)&on_device, total + 1));
  CHECK(on_device == NULL);
  OK(cudaHostRegister(pageable, sizeof pageable, cudaHostRegisterDefault));
  SAME(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(pageable, 8, cudaHostRegisterDefault));
  OK(cudaHostUnregister(pageable));
  OK(cudaFreeHost(pinned));
  SAME(0, nccl4j_standin_live("memory"));
  OK(cudaFree(NULL));
}

static void faults(void) {
  void *pointer = NULL;
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  int version;
  nccl4j_standin_reset();
  SAME(-1, nccl4j_standin_fail("ncclAllReduse", 3, 1));
  OK(nccl4j_standin_fail("cudaMalloc", cudaErrorMemoryAllocation, 2));
  OK(cudaMalloc(&pointer, 16));
  OK(cudaFree(pointer));
  SAME(cudaErrorMemoryAllocation, cudaMalloc(&pointer, 16));
  OK(cudaMalloc(&pointer, 16));
  OK(cudaFree(pointer));
  SAME(3, nccl4j_standin_calls("cudaMalloc"));
  OK(nccl4j_standin_fail("ncclGetVersion", ncclSystemError, 0));
  for (int i = 0; i < 3; i++) SAME(ncclSystemError, ncclGetVersion(&version));
  nccl4j_standin_reset();
  OK(ncclGetVersion(&version));
  SAME(NCCL_VERSION_CODE, version);

  OK(nccl4j_standin_pitfall(3, 1));
  OK(nccl4j_standin_fail("ncclCommInitRankConfig", ncclUnhandledCudaError, 1));
  OK(ncclGetUniqueId(&id));
  SAME(ncclUnhandledCudaError, ncclCommInitRankConfig(&comm, 1, id, 0, NULL));
  SAME(ncclSuccess, ncclGroupEnd()); /* the group that was left open */
  SAME(ncclInvalidUsage, ncclGroupEnd());
  nccl4j_standin_reset();

  OK(cudaSetDevice(0));
  OK(ncclCommInitRank(&comm, 1, id, 0));
  OK(nccl4j_standin_fail("ncclCommDestroy", ncclInvalidArgument, 1));
  SAME(ncclInvalidArgument, ncclCommDestroy(comm));
  SAME(1, nccl4j_standin_live("communicator"));
  OK(nccl4j_standin_fail("ncclCommDestroy", ncclUnhandledCudaError, 1));
  SAME(ncclUnhandledCudaError, ncclCommDestroy(comm));
  SAME(0, nccl4j_standin_live("communicator"));
  SAME(ncclInvalidArgument, ncclCommDestroy(comm));
  SAME(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 2));
  SAME(ncclSystemError, ncclCommInitRank(&comm, 1, id, 0)); /* used */
  CHECK(comm == NULL);
  nccl4j_standin_set_devices(0);
  SAME(ncclUnhandledCudaError, ncclCommInitRank(&comm, 1, id, 0));
  nccl4j_standin_reset();
}

static void refusals(void) {
  ncclComm_t comms[2], child, other;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId ids[2];
  ncclResult_t state;
  cudaStream_t stream;
  int32_t *value, pageable;
  char name[] = "named";
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc((void **)&value, 8));
  OK(ncclGetUniqueId(&ids[0]));
  OK(ncclGetUniqueId(&ids[1]));
  SAME(ncclInvalidArgument, ncclCommInitRankScalable(&comms[0], 1, 0, 2, ids, NULL));
  config.commName = name;
  OK(ncclCommInitRankScalable(&comms[0], 1, 0, 1, ids, &config));
  SAME(1, nccl4j_standin_comm_name_intact(comms[0]));
  name[0] = 'N';
  SAME(0, nccl4j_standin_comm_name_intact(comms[0]));
  config.commName = NULL;
  config.magic = 1;
  SAME(ncclInvalidArgument, ncclCommInitRankConfig(&other, 1, ids[1], 0, &config));
  config.magic = NCCL_API_MAGIC;
  config.blocking = 0;
  SAME(ncclInProgress, ncclCommInitRankConfig(&comms[1], 1, ids[1], 0, &config));
  OK(settled(comms[1]));

  OK(ncclGroupStart()); /* blocking and non-blocking */
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comms[0], stream));
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comms[1], stream));
  SAME(ncclInvalidArgument, ncclGroupEnd());
  OK(nccl4j_standin_pitfall(4, 1));
  OK(ncclCommSplit(comms[1], 0, 0, &child, NULL));
  OK(settled(comms[1]));
  OK(ncclCommDestroy(child));
  OK(nccl4j_standin_pitfall(14, 1));
  int device = -1;
  SAME(ncclInProgress, ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comms[1], stream));
  OK(settled(comms[1]));
  OK(cudaGetDevice(&device));
  SAME(1, device);
  OK(cudaSetDevice(0));
  nccl4j_standin_reset();
  SAME(ncclInvalidArgument, ncclAllReduce(value, NULL, 1, ncclInt32, ncclSum, comms[0], stream));
  SAME(ncclInvalidArgument, ncclAllReduce(value, value, 1, ncclNumTypes, ncclSum, comms[0], stream));
  SAME(ncclInvalidArgument, ncclBroadcast(value, value, 1, ncclInt32, 1, comms[0], stream));
  SAME(ncclInvalidArgument, ncclAllReduce(value, value, 1, ncclInt32, ncclSum, NULL, stream));
  OK(ncclAllReduce(NULL, NULL, 0, ncclInt32, ncclSum, comms[0], stream));
  nccl4j_standin_set_noop(1);
  OK(ncclAllReduce(&pageable, &pageable, 1000, ncclInt32, ncclSum, NULL, stream));
  nccl4j_standin_set_noop(0);
  OK(ncclAllReduce(value, value, 3, ncclInt32, ncclSum, comms[0], stream)); /* beyond the end */
  SAME(cudaErrorIllegalAddress, cudaStreamSynchronize(stream));
  OK(ncclCommGetAsyncError(comms[0], &state));
  SAME(ncclUnhandledCudaError, state);
  OK(ncclCommAbort(comms[0]));
  OK(ncclCommDestroy(comms[1]));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(stream));

  OK(ncclCommInitAll(comms, 2, NULL)); /* destroying is collective */
  OK(nccl4j_standin_pitfall(8, 1));
  OK(ncclGroupStart());
  OK(ncclCommDestroy(comms[0]));
  OK(ncclCommDestroy(comms[1]));
  OK(ncclGroupEnd());
  nccl4j_standin_reset();
}

/* ---- communicators that change ---- */

static int sum_of_ones(ncclComm_t comm, cudaStream_t stream) {
  int one = 1, sum, *value;
  OK(cudaMalloc((void **)&value, 4));
  OK(cudaMemcpyAsync(value, &one, 4, cudaMemcpyHostToDevice, stream));
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comm, stream));
  OK(cudaMemcpyAsync(&sum, value, 4, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(value));
  return sum;
}

static void shrinks(struct rank *r) {
  ncclComm_t rest;
  int number, excluded[] = {r->ranks - 1, 0}, self[] = {r->rank}, far[] = {r->ranks};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  SAME(ncclInvalidArgument, ncclCommShrink(r->comm, excluded, 0, &rest, NULL, NCCL_SHRINK_DEFAULT));
  SAME(ncclInvalidArgument, ncclCommShrink(r->comm, NULL, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
  SAME(ncclInvalidArgument, ncclCommShrink(r->comm, self, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
  SAME(ncclInvalidArgument, ncclCommShrink(r->comm, far, 1, &rest, NULL, NCCL_SHRINK_DEFAULT));
  for (int round = 0; round < 2 && r->rank > 0 && r->rank < r->ranks - 1; round++) {
    config.commName = "rest";
    OK(ncclCommShrink(r->comm, excluded, 2, &rest, &config, round ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT));
    SAME(0, excluded[0]); /* sorted, in the caller's own array */
    OK(ncclCommUserRank(rest, &number));
    SAME(r->rank - 1, number);
    SAME(r->ranks - 2, sum_of_ones(rest, r->stream));
    OK(ncclCommDestroy(rest));
  }
  pthread_barrier_wait(r->barrier);
  SAME(r->ranks, sum_of_ones(r->comm, r->stream));
}

/* Rank 0 makes no call; the others are stuck in a collective until their shrink ends it. */
static void shrink_stuck(struct rank *r) {
  ncclComm_t rest;
  int excluded[] = {0}, *value;
  SAME(r->ranks, sum_of_ones(r->comm, r->stream)); /* connects, so that the calls below do not wait for rank 0 */
  if (r->rank > 0) {
    OK(cudaMalloc((void **)&value, 4));
    OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
    SAME(cudaErrorNotReady, cudaStreamQuery(r->stream));
    OK(ncclCommShrink(r->comm, excluded, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    SAME(r->ranks - 1, sum_of_ones(rest, r->stream));
    OK(ncclCommDestroy(rest));
    OK(cudaFree(value));
  }
  pthread_barrier_wait(r->barrier);
}

static ncclUniqueId grow_id;

static void *grow_main(void *argument) {
  struct rank *r = argument;
  int old = r->ranks - 2, number;
  ncclComm_t grown, none;
  ncclUniqueId id;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  if (r->rank < old) OK(ncclCommInitRank(&r->comm, old, r->id, r->rank));
  if (r->rank == 1) {
    OK(ncclCommGetUniqueId(r->comm, &grow_id));
    SAME(ncclInvalidUsage, ncclCommGetUniqueId(r->comm, &id)); /* the first id is not consumed */
    SAME(ncclInvalidArgument, ncclCommGrow(r->comm, r->ranks, &grow_id, 1, &none, NULL));
    SAME(ncclInvalidArgument, ncclCommGrow(r->comm, old, &grow_id, -1, &none, NULL));
  }
  pthread_barrier_wait(r->barrier);
  id = grow_id;
  if (r->rank == old) {
    SAME(ncclInvalidArgument, ncclCommGrow(NULL, r->ranks, NULL, r->rank, &none, NULL));
    SAME(ncclInvalidArgument, ncclCommGrow(NULL, r->ranks, &id, -1, &none, NULL));
    SAME(ncclInvalidArgument, ncclCommGrow(NULL, r->ranks, &id, 0, &none, NULL)); /* taken */
    SAME(ncclInvalidArgument, ncclCommGrow(NULL, r->ranks, &r->id, r->rank, &none, NULL));
  }
  if (r->rank >= old) OK(ncclCommGrow(NULL, r->ranks, &id, r->rank, &grown, NULL));
  else OK(ncclCommGrow(r->comm, r->ranks, r->rank == 1 ? &id : NULL, -1, &grown, NULL));
  OK(ncclCommUserRank(grown, &number));
  SAME(r->rank, number);
  SAME(r->ranks, sum_of_ones(grown, r->stream));
  pthread_barrier_wait(r->barrier);
  if (r->rank == 1) OK(ncclCommGetUniqueId(r->comm, &id)); /* consumed: a new id is possible */
  OK(ncclCommDestroy(grown));
  if (r->rank < old) OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

/* Rank 0 makes no call; the revoke ends the operations of the others. */
static void *revoke_main(void *argument) {
  struct rank *r = argument;
  ncclComm_t child;
  int *value;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclCommInitRank(&r->comm, r->ranks, r->id, r->rank));
  OK(cudaMalloc((void **)&value, 4));
  SAME(r->ranks, sum_of_ones(r->comm, r->stream)); /* connects */
  if (r->rank > 0) OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclCommRevoke(r->comm, 1));
  OK(ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
  OK(cudaStreamSynchronize(r->stream));
  SAME(ncclInvalidArgument, ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
  SAME(ncclInvalidUsage, ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclCommFinalize(r->comm));
  OK(ncclCommSplit(r->comm, 0, 0, &child, NULL));
  SAME(r->ranks, sum_of_ones(child, r->stream));
  OK(ncclCommDestroy(child));
  OK(ncclCommDestroy(r->comm));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

static void suspends(struct rank *r) {
  uint64_t all, suspendable, persistent, suspended;
  int *value;
  OK(cudaMalloc((void **)&value, 4));
  SAME(ncclInvalidUsage, ncclCommResume(r->comm));
  OK(ncclCommSuspend(r->comm, 0)); /* no flag: nothing is suspended */
  OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
  SAME(ncclInvalidUsage, ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
  SAME(ncclInvalidUsage, ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclCommMemStats(r->comm, ncclStatGpuMemTotal, &all));
  OK(ncclCommMemStats(r->comm, ncclStatGpuMemSuspend, &suspendable));
  OK(ncclCommMemStats(r->comm, ncclStatGpuMemPersist, &persistent));
  OK(ncclCommMemStats(r->comm, ncclStatGpuMemSuspended, &suspended));
  SAME(all, suspendable + persistent);
  SAME(1, suspended);
  SAME(ncclInvalidArgument, ncclCommMemStats(r->comm, (ncclCommMemStat_t)4, &all));
  SAME(ncclInvalidArgument, ncclCommMemStats(r->comm, ncclStatGpuMemTotal, NULL));
  OK(ncclCommResume(r->comm));
  OK(ncclCommMemStats(r->comm, ncclStatGpuMemSuspended, &suspended));
  SAME(0, suspended);
  SAME(r->ranks, sum_of_ones(r->comm, r->stream));
  OK(cudaFree(value));
}

static ncclUniqueId several_ids[2];

static void *scalable_main(void *argument) {
  struct rank *r = argument;
  ncclUniqueId swapped[] = {several_ids[0], r->id}, own[] = {several_ids[0], several_ids[1]};
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  SAME(ncclInvalidArgument, ncclCommInitRankScalable(&r->comm, r->ranks, r->rank, r->ranks + 1, own, NULL));
  SAME(ncclInvalidArgument, ncclCommInitRankScalable(&r->comm, r->ranks, r->rank, 0, own, NULL));
  if (r->rank == 1) {
    while (nccl4j_standin_live("communicator") == 0) usleep(1000);
    SAME(ncclInvalidUsage, ncclCommInitRankScalable(&r->comm, r->ranks, r->rank, 2, swapped, NULL));
  }
  OK(ncclCommInitRankScalable(&r->comm, r->ranks, r->rank, 2, own, NULL));
  SAME(r->ranks, sum_of_ones(r->comm, r->stream));
  OK(ncclCommDestroy(r->comm));
  OK(cudaStreamDestroy(r->stream));
  return NULL;
}

/* Pitfalls 4 and 5: a pending call returns success, its pointer is written later, and queries fail meanwhile. */
static void *pending_main(void *argument) {
  struct rank *r = argument;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int excluded[] = {1}, number;
  ncclComm_t child;
  ncclUniqueId id;
  config.blocking = 0;
  OK(cudaSetDevice(r->rank));
  ncclResult_t made = ncclCommInitRankConfig(&r->comm, r->ranks, r->id, r->rank, &config);
  SAME(ncclInProgress, made);
  OK(settled(r->comm));
  if (r->rank == 0) {
    OK(ncclCommShrink(r->comm, excluded, 1, &child, &config, NCCL_SHRINK_DEFAULT));
    CHECK(child == NULL);
    SAME(ncclInvalidArgument, ncclCommCount(r->comm, &number));
    SAME(ncclInvalidArgument, ncclCommUserRank(r->comm, &number));
    SAME(ncclInvalidArgument, ncclCommCuDevice(r->comm, &number));
    OK(settled(r->comm));
    CHECK(child != NULL);
    OK(ncclCommGetUniqueId(child, &id));
    ncclComm_t grown;
    OK(ncclCommGrow(child, 2, &id, -1, &grown, &config)); /* no rank joins */
    CHECK(grown != NULL);
    SAME(ncclInvalidArgument, ncclCommCount(grown, &number));
    OK(ncclCommCount(child, &number));
    OK(ncclCommAbort(grown));
    OK(ncclCommDestroy(child));
  }
  OK(ncclCommDestroy(r->comm));
  return NULL;
}

static atomic_int refused_calls;

/* Calls for both threads, and counts the calls that were refused since the other thread was inside. */
static void call_of_two_threads(struct rank *r) {
  int *value;
  OK(cudaSetDevice(0));
  OK(cudaMalloc((void **)&value, 4));
  ncclResult_t result = ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream);
  if (result == ncclInternalError) atomic_fetch_add(&refused_calls, 1);
  else OK(result);
  OK(cudaFree(value));
}

static void *second_caller(void *argument) {
  call_of_two_threads(argument);
  return NULL;
}

/* Pitfall 13. */
static void two_threads_in_one_communicator(void) {
  struct rank r = {.ranks = 1};
  pthread_t thread;
  ncclResult_t state;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  OK(ncclGetUniqueId(&r.id));
  OK(ncclCommInitRank(&r.comm, 1, r.id, 0));
  OK(nccl4j_standin_pitfall(13, LIMIT_SECONDS * 1000));
  pthread_create(&thread, NULL, second_caller, &r);
  call_of_two_threads(&r);
  pthread_join(thread, NULL);
  SAME(1, atomic_load(&refused_calls));
  OK(ncclCommGetAsyncError(r.comm, &state));
  SAME(ncclInternalError, state);
  nccl4j_standin_reset();
  OK(ncclCommAbort(r.comm));
  OK(cudaStreamDestroy(r.stream));
}

/* Queries the state until it does so while the other thread ends a group. */
static void *query_state(void *argument) {
  struct rank *r = argument;
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < LIMIT_SECONDS * 1000 && state != ncclInternalError; i++) {
    OK(ncclCommGetAsyncError(r->comm, &state));
    usleep(1000);
  }
  SAME(ncclInternalError, state);
  return NULL;
}

/* Pitfall 13. */
static void state_query_during_group_end(void) {
  struct rank r = {.ranks = 1};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  pthread_t thread;
  int *value;
  config.blocking = 0;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
  OK(ncclGetUniqueId(&r.id));
  ncclResult_t made = ncclCommInitRankConfig(&r.comm, 1, r.id, 0, &config);
  CHECK(made == ncclSuccess || made == ncclInProgress);
  OK(settled(r.comm));
  OK(cudaMalloc((void **)&value, 4));
  nccl4j_standin_reset();
  OK(ncclGroupStart());
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r.comm, r.stream));
  OK(nccl4j_standin_pitfall(13, LIMIT_SECONDS * 1000));
  pthread_create(&thread, NULL, query_state, &r);
  ncclResult_t ended = ncclGroupEnd();
  CHECK(ended == ncclSuccess || ended == ncclInProgress);
  pthread_join(thread, NULL);
  nccl4j_standin_reset();
  OK(ncclCommAbort(r.comm));
  OK(cudaFree(value));
  OK(cudaStreamDestroy(r.stream));
}

/* Every rank puts its number into the next rank's window, and waits for the signal of the previous rank. */
static void windows(struct rank *r) {
  int32_t *memory, mine, theirs;
  void *user, *plain;
  ncclWindow_t window = NULL;
  int next = (r->rank + 1) % r->ranks, last = (r->rank + r->ranks - 1) % r->ranks;
  size_t place = (size_t)(r->rank + 1) * sizeof mine;
  ncclWaitSignalDesc_t from_last = {.opCnt = 1, .peer = last};
  OK(ncclMemAlloc((void **)&memory, 4096));
  OK(cudaMalloc(&plain, 4096));
  SAME(ncclInvalidArgument, ncclCommWindowRegister(r->comm, NULL, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclCommWindowRegister(r->comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  OK(ncclWinGetUserPtr(r->comm, window, &user));
  CHECK(user == memory);
  void *peers = NULL, *multimem = memory;
  ncclCommProperties_t properties = {.size = sizeof properties, .magic = NCCL_API_MAGIC, .version = NCCL_VERSION_CODE};
  OK(ncclGetPeerDevicePointer(window, 8, r->rank, &peers));
  CHECK(peers == (char *)memory + 8);
  OK(ncclGetPeerDevicePointer(window, 0, next, &peers));
  CHECK(peers != NULL && (r->ranks == 1 || peers != memory));
  SAME(ncclInvalidArgument, ncclGetPeerDevicePointer(window, 0, r->ranks, &peers));
  OK(ncclGetLsaMultimemDevicePointer(window, 0, &multimem));
  CHECK(multimem == NULL);
  OK(ncclCommQueryProperties(r->comm, &properties));
  SAME(r->rank, properties.rank);
  SAME(r->ranks, properties.nRanks);
  CHECK(properties.deviceApiSupport && properties.nLsaTeams == 1);
  properties.magic = 0;
  SAME(ncclInvalidUsage, ncclCommQueryProperties(r->comm, &properties));
  mine = 100 + r->rank;
  OK(cudaMemcpy(memory, &mine, sizeof mine, cudaMemcpyHostToDevice));
  SAME(ncclInvalidArgument, ncclPutSignal(plain, 1, ncclInt32, next, window, place, 0, 0, 0, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclPutSignal(memory, 1, ncclInt32, next, window, place, 1, 0, 0, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclPutSignal(memory, 1, ncclInt32, next, window, place, 0, 1, 0, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclPutSignal(memory, 1, ncclInt32, next, window, place, 0, 0, 1, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclSignal(r->ranks, 0, 0, 0, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclWaitSignal(0, &from_last, r->comm, r->stream));
  OK(ncclGroupStart());
  OK(ncclPutSignal(memory, 1, ncclInt32, next, window, place, 0, 0, 0, r->comm, r->stream));
  OK(ncclWaitSignal(1, &from_last, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaMemcpy(&theirs, memory + last + 1, sizeof theirs, cudaMemcpyDeviceToHost));
  SAME(100 + last, theirs);
  OK(ncclSignal(next, 0, 0, 0, r->comm, r->stream));
  OK(ncclSignal(next, 0, 0, 0, r->comm, r->stream));
  from_last.opCnt = 2;
  OK(ncclWaitSignal(1, &from_last, r->comm, r->stream));
  OK(cudaStreamSynchronize(r->stream));
  OK(ncclCommWindowDeregister(r->comm, window));
  SAME(ncclInternalError, ncclCommWindowDeregister(r->comm, window));
  OK(ncclCommWindowDeregister(r->comm, NULL));
  OK(cudaFree(plain));
  OK(ncclMemFree(memory));
}

static void windows_on_demand(struct rank *r) {
  void *memory;
  ncclWindow_t window = (ncclWindow_t)&memory;
  OK(ncclMemAlloc(&memory, 4096));
  nccl4j_standin_windows(0);
  OK(ncclCommWindowRegister(r->comm, memory, 4096, &window, 0));
  CHECK(window == NULL);
  nccl4j_standin_windows(1);
  SAME(ncclInvalidArgument, ncclCommWindowRegister(r->comm, (char *)memory + 256, 256, &window, 0));
  CHECK(window == NULL);
  OK(ncclMemFree(memory));
}

/* A window's handle is written when the call has completed, and not before, whatever the call returned. */
static void late_window(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  ncclComm_t comm;
  ncclWindow_t window;
  void *memory;
  config.blocking = 0;
  OK(cudaSetDevice(0));
  OK(ncclGetUniqueId(&id));
  SAME(ncclInProgress, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  OK(settled(comm));
  OK(ncclMemAlloc(&memory, 4096));
  nccl4j_standin_hold(100);
  OK(nccl4j_standin_pitfall(4, 1));
  OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  CHECK(window == NULL);
  OK(settled(comm));
  CHECK(window != NULL);
  SAME(1, nccl4j_standin_live("window"));
  nccl4j_standin_reset();
  OK(ncclCommDestroy(comm));
  OK(ncclMemFree(memory));
}

static void simulation(struct rank *r) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER, wrong = {.size = sizeof wrong};
  int32_t *value, mine = 1;
  OK(cudaMalloc((void **)&value, 4096));
  OK(cudaMemcpy(value, &mine, sizeof mine, cudaMemcpyHostToDevice));
  SAME(ncclInvalidUsage, ncclGroupSimulateEnd(&info));
  OK(ncclGroupStart());
  OK(ncclAllReduce(value, value, 1024, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime == 14);
  OK(ncclGroupStart());
  OK(ncclAllReduce(value, value, 1024, ncclInt32, ncclSum, r->comm, r->stream));
  SAME(ncclInvalidArgument, ncclGroupSimulateEnd(&wrong));
  SAME(ncclInvalidUsage, ncclGroupEnd());
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaMemcpy(&mine, value, sizeof mine, cudaMemcpyDeviceToHost));
  SAME(1, mine); /* nothing was launched */
  OK(ncclGroupStart());
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(NULL)); /* launches */
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaMemcpy(&mine, value, sizeof mine, cudaMemcpyDeviceToHost));
  SAME(r->ranks, mine);
  OK(cudaFree(value));
}

static void parameters(void) {
  const char **keys, *text;
  ncclParamHandle_t h;
  int count, length;
  int8_t i8;
  uint32_t u32;
  uint64_t u64;
  char bytes[16];
  OK(ncclParamGetAllParameterKeys(&keys, &count));
  SAME(6, count);
  SAME(ncclInvalidArgument, ncclParamBind(&h, "NCCL_NO_SUCH_PARAMETER"));
  SAME(ncclInvalidArgument, ncclParamGetParameter("NCCL_NO_SUCH_PARAMETER", &text, &length));
  OK(ncclParamBind(&h, "NCCL_DEBUG_SUBSYS"));
  SAME(ncclInvalidArgument, ncclParamGetU32(h, &u32));
  OK(ncclParamGetU64(h, &u64));
  SAME(0x1081, u64);
  SAME(ncclInvalidArgument, ncclParamGetStr(h, &text));
  SAME(ncclInvalidArgument, ncclParamGet(h, bytes, 7, &length));
  SAME(0, length);
  OK(ncclParamGet(h, bytes, 16, &length));
  SAME(8, length);
  OK(ncclParamBind(&h, "NCCL4J_STANDIN_I8"));
  OK(ncclParamGetI8(h, &i8));
  SAME(INT8_MIN, i8);
  OK(ncclParamGetParameter("NCCL_DEBUG_TIMESTAMP_FORMAT", &text, &length));
  SAME(8, length);
  CHECK(strcmp(text, "[%F %T] ") == 0);
  SAME(0, nccl4j_standin_param_overlaps());
}

static void many_streams(void) {
  cudaStream_t streams[300];
  atomic_int flag = 0;
  OK(cudaSetDevice(1));
  for (int i = 0; i < 300; i++) OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  for (int i = 0; i < 300; i++) OK(cudaLaunchHostFunc(streams[i], set_to, &flag));
  for (int i = 0; i < 300; i++) OK(cudaStreamDestroy(streams[i]));
  OK(cudaDeviceSynchronize());
}

/* ---- graphs with operations of a communicator, and first operations that connect ---- */

struct ending {
  ncclComm_t comm;
  ncclResult_t (*end)(ncclComm_t);
  atomic_int result; /* -1 until the call has returned */
};

static void *end_main(void *argument) {
  struct ending *e = argument;
  atomic_store(&e->result, (int)e->end(e->comm));
  return NULL;
}

static void still_waiting(struct ending *e) {
  usleep(50000);
  SAME(-1, atomic_load(&e->result));
}

/* Finalize, destroy and abort wait until the graphs with operations of the communicator are destroyed. */
static void ended_after_its_graphs(ncclResult_t (*end)(ncclComm_t)) {
  ncclUniqueId id;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  void *value;
  pthread_t thread;
  struct ending e = {.end = end, .result = -1};
  OK(cudaSetDevice(0));
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRank(&e.comm, 1, id, 0));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaMalloc(&value, 4));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, e.comm, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(pthread_create(&thread, NULL, end_main, &e));
  still_waiting(&e);
  OK(cudaGraphDestroy(graph));
  still_waiting(&e);
  OK(cudaGraphExecDestroy(executable));
  OK(pthread_join(thread, NULL));
  SAME(0, atomic_load(&e.result));
  if (end == ncclCommFinalize) OK(ncclCommDestroy(e.comm));
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(value));
}

struct caller {
  ncclComm_t comm;
  cudaStream_t stream;
  void *value;
  atomic_int result; /* -1 until it has returned */
};

static void *caller_main(void *argument) {
  struct caller *c = argument;
  atomic_store(&c->result, (int)ncclAllReduce(c->value, c->value, 1, ncclInt32, ncclSum, c->comm, c->stream));
  return NULL;
}

static void callers_new(struct caller callers[2]) {
  ncclComm_t comms[2];
  OK(ncclCommInitAll(comms, 2, NULL));
  for (int i = 0; i < 2; i++) {
    OK(cudaSetDevice(i));
    callers[i] = (struct caller){.comm = comms[i], .result = -1};
    OK(cudaStreamCreateWithFlags(&callers[i].stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&callers[i].value, 4));
  }
}

static void callers_free(struct caller callers[2]) {
  for (int i = 0; i < 2; i++) {
    OK(ncclCommAbort(callers[i].comm));
    OK(cudaStreamDestroy(callers[i].stream));
    OK(cudaFree(callers[i].value));
  }
}

static void first_operations(void) {
  struct caller callers[2];
  pthread_t thread;
  callers_new(callers);
  OK(pthread_create(&thread, NULL, caller_main, &callers[0]));
  AWAIT(1, nccl4j_standin_live("connecting"));
  SAME(-1, atomic_load(&callers[0].result));
  caller_main(&callers[1]);
  OK(pthread_join(thread, NULL));
  SAME(0, atomic_load(&callers[0].result));
  SAME(0, atomic_load(&callers[1].result));
  caller_main(&callers[0]); /* connected: the call no longer waits */
  SAME(0, atomic_load(&callers[0].result));
  callers_free(callers);

  callers_new(callers);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) caller_main(&callers[i]);
  OK(ncclGroupEnd());
  callers_free(callers);

  callers_new(callers);
  OK(pthread_create(&thread, NULL, caller_main, &callers[0]));
  AWAIT(1, nccl4j_standin_live("connecting"));
  OK(ncclCommRevoke(callers[0].comm, NCCL_REVOKE_DEFAULT));
  OK(pthread_join(thread, NULL));
  SAME(ncclInternalError, atomic_load(&callers[0].result));
  callers_free(callers);
}

static void abort_during_a_call(void) {
  struct caller callers[2];
  pthread_t thread;
  callers_new(callers);
  OK(pthread_create(&thread, NULL, caller_main, &callers[0]));
  AWAIT(1, nccl4j_standin_live("connecting"));
  ncclCommAbort(callers[0].comm);
}

static void *init_on_little_stack(void *argument) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  OK(cudaSetDevice(0));
  OK(ncclGetUniqueId(&id));
  SAME(*(int *)argument, ncclCommInitRank(&comm, 1, id, 0));
  OK(ncclCommAbort(comm));
  return NULL;
}

static void stack_of_an_initialisation(void) {
  const size_t stacks[] = {1 << 20, 8 << 20};
  int results[] = {ncclSystemError, ncclSuccess};
  nccl4j_standin_init_stack(2 << 20);
  for (int i = 0; i < 2; i++) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    OK(pthread_attr_setstacksize(&attributes, stacks[i]));
    OK(pthread_create(&thread, &attributes, init_on_little_stack, &results[i]));
    OK(pthread_join(thread, NULL));
    pthread_attr_destroy(&attributes);
  }
  nccl4j_standin_init_stack(0);
}

static void nothing_left(int64_t threads) {
  const char *kinds[] = {"memory", "pinned", "stream", "event", "communicator", "redop", "graph", "registration", "window"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    int64_t left = nccl4j_standin_live(kinds[k]);
    if (left != 0) fprintf(stderr, "live objects of kind %s: ", kinds[k]);
    SAME(0, left);
  }
  for (int i = 0; i < LIMIT_SECONDS * 1000 && nccl4j_standin_live("thread") > threads; i++) usleep(1000);
  CHECK(nccl4j_standin_live("thread") <= threads);
}

static void say(const char *name) {
  printf("selftest: %s\n", name);
  fflush(stdout);
}

static void variables(void) {
  static const struct {
    const char *name, *value, *rule;
  } refused[] = {
      {"NCCL4J_STANDIN_NOOP", "yes", "a number from 0 to 1"},
      {"NCCL4J_STANDIN_CONNECT", "2", "a number from 0 to 1"},
      {"NCCL4J_STANDIN_HOLD_MS", "-2", "a number from -1 to 2147483647"},
      {"NCCL4J_STANDIN_INIT_STACK", "2M", "a number from 0 to 2147483647"},
      {"NCCL4J_STANDIN_KERNEL_NS", "-1", "a number from 0 to 9223372036854775807"},
      {"NCCL4J_STANDIN_ABSENT_RANK", "last", "a number from -1 to 2147483647"},
      {"NCCL4J_STANDIN_PITFALLS", "3;8", "numbers of pitfalls, such as 3,8"},
      {"NCCL4J_STANDIN_PITFALLS", "3,", "numbers of pitfalls, such as 3,8"},
      {"NCCL4J_STANDIN_PITFALLS", "5", "numbers of pitfalls, such as 3,8"},
      {"NCCL4J_STANDIN_RANK_FAILS", "1:", "rank or rank:result"},
      {"NCCL4J_STANDIN_RANK_FAILS", "one", "rank or rank:result"},
      {"NCCL4J_STANDIN_RANK_FAILS", "-1", "rank or rank:result"},
      {"NCCL4J_STANDIN_RANK_FAILS", "1:999", "rank or rank:result"},
      {"NCCL4J_STANDIN_PITFALLS", "4294967299", "numbers of pitfalls, such as 3,8"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    CHECK(refuses_variable(refused[i].name, refused[i].value, refused[i].rule));
}

int main(int count, char **arguments) {
  (void)arguments;
  if (count > 1) return 0; /* started again, with a variable */
  say(nccl4j_standin_name());
  say("variables of the environment"), variables();
  nccl4j_standin_set_devices(MAX_RANKS);
  int64_t legacy = MAX_RANKS + 1; /* the workers of the devices' legacy streams and of this thread's stream remain */
  say("an abort during a call");
  CHECK(refuses(abort_during_a_call, "nccl4j stand-in: ncclCommAbort frees a communicator while a thread connects inside "
                                     "one of its calls; the real library would use freed memory\n"));
  say("streams and events"), streams_and_events(), nothing_left(legacy);
  say("many streams"), many_streams(), nothing_left(legacy);
  for (int ranks = 1; ranks <= 5; ranks += 2) {
    say("all-reduce, every type and operator"), on_threads(ranks, rank_main, all_reduce_every_type, NULL);
    say("the other collectives"), on_threads(ranks, rank_main, other_collectives, NULL);
    nothing_left(legacy);
  }
  say("the other collectives, 17 ranks"), on_threads(MAX_RANKS, rank_main, other_collectives, NULL);
  say("arithmetic"), on_threads(2, rank_main, arithmetic, NULL), nothing_left(legacy);
  say("groups"), on_threads(7, rank_main, groups, NULL), nothing_left(legacy);
  say("a group has no order"), on_threads(3, rank_main, group_has_no_order, NULL), nothing_left(legacy);
  say("split"), on_threads(7, rank_main, splits, NULL), nothing_left(legacy);
  say("shrink"), on_threads(5, rank_main, shrinks, NULL), nothing_left(legacy);
  say("shrink with stuck operations"), on_threads(4, rank_main, shrink_stuck, NULL), nothing_left(legacy);
  say("grow"), on_threads(5, grow_main, NULL, NULL), nothing_left(legacy);
  say("revoke"), on_threads(3, revoke_main, NULL, NULL), nothing_left(legacy);
  say("suspend and resume"), on_threads(3, rank_main, suspends, NULL), nothing_left(legacy);
  OK(ncclGetUniqueId(&several_ids[0]));
  OK(ncclGetUniqueId(&several_ids[1]));
  say("several ids"), on_threads(3, scalable_main, NULL, NULL), nothing_left(legacy);
  OK(nccl4j_standin_pitfall(4, 1));
  nccl4j_standin_hold(50);
  say("pending calls"), on_threads(2, pending_main, NULL, NULL), nothing_left(legacy);
  nccl4j_standin_reset();
  nccl4j_standin_set_devices(MAX_RANKS);
  say("two threads in one communicator"), two_threads_in_one_communicator(), nothing_left(legacy);
  nccl4j_standin_set_devices(MAX_RANKS);
  say("a state query during the end of a group"), state_query_during_group_end(), nothing_left(legacy);
  nccl4j_standin_set_devices(MAX_RANKS);
  say("graphs"), on_threads(4, rank_main, graphs, NULL), nothing_left(legacy);
  say("graphs keep their communicator alive"), ended_after_its_graphs(ncclCommFinalize);
  ended_after_its_graphs(ncclCommDestroy), ended_after_its_graphs(ncclCommAbort), nothing_left(legacy);
  say("first operations connect"), first_operations(), nothing_left(legacy);
  say("stack size of an initialisation"), stack_of_an_initialisation(), nothing_left(legacy);
  say("one thread drives all ranks"), one_thread_drives_all(), nothing_left(legacy);
  say("kernel time"), on_threads(2, kernel_time_main, kernel_time, NULL), nothing_left(legacy);
  say("abort of a stuck collective"), on_threads(3, stuck_main, NULL, NULL), nothing_left(legacy);
  OK(nccl4j_standin_pitfall(15, 1)); /* aborted together, none waits for another one's kernel for long */
  say("aborts that wait for kernels"), on_threads(3, stuck_main, NULL, NULL), nothing_left(legacy);
  OK(nccl4j_standin_pitfall(15, 0));
  say("mismatched collectives"), on_threads(2, mismatch_main, NULL, NULL), nothing_left(legacy);
  nccl4j_standin_hold(50);
  say("non-blocking"), on_threads(4, non_blocking_main, NULL, NULL), nothing_left(legacy);
  nccl4j_standin_hold(0);
  say("a rank that never arrives"), rank_never_arrives(), nothing_left(legacy);
  nccl4j_standin_absent(-1);
  say("a rank that fails"), rank_fails(), nothing_left(legacy);
  say("windows and one-sided operations"), on_threads(4, rank_main, windows, NULL), nothing_left(legacy);
  say("windows on demand"), on_threads(1, rank_main, windows_on_demand, NULL), nothing_left(legacy);
  say("a window that is registered late"), late_window(), nothing_left(legacy);
  say("simulation"), on_threads(2, rank_main, simulation, NULL), nothing_left(legacy);
  say("waits of allocations"), allocation_waits(), nothing_left(legacy);
  say("modes of a capture"), capture_modes(), nothing_left(legacy);
  nccl4j_standin_reset();
  nccl4j_standin_set_devices(MAX_RANKS);
  say("contexts"), contexts(), nothing_left(legacy);
  say("parameters"), parameters();
  say("memory"), memory_rules();
  nccl4j_standin_reset();
  say("refused calls"), refusals(), nothing_left(legacy);
  say("faults"), faults(), nothing_left(legacy);
  say("ok");
  return 0;
}
