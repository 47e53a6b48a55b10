// Prints the steps of an all-reduce according to NCCL's own source: which rank receives, reduces and sends what.
//
// NcclSourceTest extracts the parts of NCCL (nccl_*.inc) from a checkout and writes the all-reduces to run to standard
// input, one per line: algorithm, ranks, channels, protocol, elements, bytes per element, bytes per chunk, ranks per
// node, pattern, and the ranks in their order. The code here only makes those parts compile on a host, with primitives
// that record their calls.
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline
#define INFO(...) ((void)0)
#define WARN(...) abort()
#define NCCLCHECK(call) do { ncclResult_t result = (call); if (result != ncclSuccess) return result; } while (0)

enum { WARP_SIZE = 32, NCCL_LL128_SHMEM_ELEMS_PER_THREAD = 8, NCCL_LL128_LINEELEMS = 16, NCCL_LL128_DATAELEMS = 15 };
enum { NCCL_PROTO_LL, NCCL_PROTO_LL128, NCCL_PROTO_SIMPLE };
enum { NCCL_ALGO_TREE, NCCL_ALGO_RING };
enum { NCCL_MAX_TREE_ARITY_TOP = 2, NCCL_MAX_TREE_ARITY = 3, MAXCHANNELS = 64 };
enum { NCCL_TOPO_PATTERN_BALANCED_TREE = 1, NCCL_TOPO_PATTERN_SPLIT_TREE, NCCL_TOPO_PATTERN_TREE };
enum ncclResult_t { ncclSuccess, ncclInternalError };

using std::max;
static int min(int a, ssize_t b) { return a < b ? a : static_cast<int>(b); }
static ssize_t min(ssize_t a, ssize_t b) { return a < b ? a : b; }
static size_t min(size_t a, size_t b) { return a < b ? a : b; }
template <typename A, typename B> static size_t divUp(A a, B b) { return (a + b - 1) / b; }
template <typename A, typename B> static size_t alignUp(A a, B b) { return divUp(a, b) * b; }
static int log2i(int n) { return n < 2 ? 0 : 1 + log2i(n / 2); }

struct ncclRing { int prev, next, index; };
struct ncclTree { int depth, up, down[NCCL_MAX_TREE_ARITY]; };
struct ncclChannel { ncclRing ring; ncclTree tree; };
struct ncclComm { int nChannels, nNodes, node, rank, nRanks; ncclChannel channels[2 * MAXCHANNELS]; };
struct ncclDevWorkColl {
  int channelLo, channelHi;
  void *sendbuff = nullptr, *recvbuff = nullptr;
  uint64_t redOpArg = 0;
  struct { size_t countLo, countMid, countHi; uint64_t chunkGrainsLo, chunkGrainsMid, chunkGrainsHi; } cbd;
};
static struct { ncclChannel channel; struct { int nRanks; } comm; int channelId; } ncclShmem;

#include "nccl_parts.inc"

static int rankOfSteps;
static std::vector<std::string> steps;

static void note(const char* action, const std::vector<int>& from, const std::vector<int>& to, long begin, int count) {
  if (count <= 0) return;
  std::ostringstream text;
  text << ncclShmem.channelId << ' ' << rankOfSteps << ' ' << action << ' ' << begin << ' ' << count << " from";
  for (int rank : from) text << ' ' << rank;
  text << " to";
  for (int rank : to) text << ' ' << rank;
  steps.push_back(text.str());
}

template <int Recv, int Send> struct FanAsymmetric { enum { MaxRecv = Recv, MaxSend = Send }; };
template <int Both> struct FanSymmetric { enum { MaxRecv = Both, MaxSend = Both }; };
template <int Which> struct Protocol { enum { Id = Which, MaxGroupWidth = 1 }; };

template <typename T, typename RedOp, typename Fan, int Direct, typename Proto, int P2p> struct Primitives {
  std::vector<int> from, to;
  Primitives(int, int, const int* recv, const int* send, void*, void*, uint64_t, int = 0, int = 0, int = 0,
             ncclDevWorkColl* = nullptr) {
    for (int i = 0; i < Fan::MaxRecv && recv[i] >= 0; i++) from.push_back(recv[i]);
    for (int i = 0; i < Fan::MaxSend && send[i] >= 0; i++) to.push_back(send[i]);
  }
  void directSend(long begin, long, int count) { note("SEND", {}, to, begin, count); }
  void directRecvReduceDirectSend(long begin, long, int count) { note("RECV_REDUCE_SEND", from, to, begin, count); }
  void directRecvReduceCopyDirectSend(long begin, long, int count, bool) {
    note("RECV_REDUCE_COPY_SEND", from, to, begin, count);
  }
  void directRecvReduceCopy(long begin, long, int count, bool) { note("RECV_REDUCE_COPY", from, {}, begin, count); }
  void directRecvCopyDirectSend(long begin, long, int count) { note("RECV_COPY_SEND", from, to, begin, count); }
  void directSendFromOutput(long begin, int count) { note("SEND", {}, to, begin, count); }
  void directRecv(long begin, int count) { note("RECV", from, {}, begin, count); }
};

#include "nccl_all_reduce.inc"
#include "nccl_trees.inc"
#include "nccl_connect.inc"

struct Run {
  std::string algorithm;
  int ranks, channels, protocol, elementBytes, chunkBytes, ranksPerNode, pattern;
  size_t count;
  std::vector<int> order;
  bool ring() const { return algorithm == "ring"; }
};

// Returns the size of a channel's chunk as calcCollChunking does.
static uint64_t chunkGrains(const Run& run, size_t nBytes) {
  const int nChannels = 1;
  int chunkSize = run.chunkBytes;
  struct { int algorithm, protocol; } of = {run.ring() ? NCCL_ALGO_RING : NCCL_ALGO_TREE, run.protocol}, *info = &of;
  struct { int nRanks, nNodes; } all = {run.ranks, static_cast<int>(divUp(run.ranks, run.ranksPerNode))}, *comm = &all;
  if (nBytes == 0) {
#include "nccl_tree_chunk.inc"
  }
  return chunkSize / ncclProtoGrainSize(run.protocol);
}

// Does what topoGetAlgoInfo and scheduleCollTasksToPlan do for a single task.
static ncclDevWorkColl divide(const Run& run) {
  const size_t elementSize = run.elementBytes, nBytes = run.count * elementSize;
  int nc = run.channels;
  const int nt = run.protocol == NCCL_PROTO_LL128 ? 640 : 512;
  int threadThreshold = run.protocol == NCCL_PROTO_SIMPLE ? 64 : 8;
  if (run.ring() && run.protocol == NCCL_PROTO_LL) threadThreshold *= run.ranks;
#include "nccl_channels.inc"
  const size_t MinTrafficPerChannel = 32 << 10;
  const size_t traffic = max(MinTrafficPerChannel, 2 * nBytes * (run.protocol == NCCL_PROTO_LL ? 4 : 1));
  const size_t trafficPerChannel = divUp(traffic / nc, 16) * 16, currentTraffic = 0;
  int channelId = 0;
  const int kind = 0, nMaxChannels[1] = {run.channels};
  struct { size_t count; int protocol, func; } of = {run.count, run.protocol, 0}, *task = &of;
  const ncclComm alone = {}, *comm = &alone;
#define ncclFuncTrafficPerByte(func, ranks) 2
#include "nccl_division.inc"
  ncclDevWorkColl work;
  work.channelLo = channelId;
  work.channelHi = channelId + nChannels - 1;
  work.cbd = {countLo, countMid, countHi, chunkGrains(run, countLo * elementSize),
              chunkGrains(run, countMid * elementSize), chunkGrains(run, countHi * elementSize)};
  return work;
}

struct Graph { int pattern; };
struct TopoRanks { int treeToParent[MAXCHANNELS], treeToChild0[MAXCHANNELS], treeToChild1[MAXCHANNELS]; };

// Does what ncclTopoPreset does for one rank of a node, on one channel.
static void preset(ncclChannel* channel, TopoRanks* topoRanks, int c, const int* treeIntra, int i, int localRanks,
                   int pattern) {
  Graph graph = {localRanks == 1 ? static_cast<int>(NCCL_TOPO_PATTERN_TREE) : pattern};
  Graph* graphs[] = {&graph};
#include "nccl_preset.inc"
}

static std::vector<ncclComm> connect(const Run& run) {
  const int nodes = divUp(run.ranks, run.ranksPerNode), searched = (run.channels + 1) / 2;
  std::vector<ncclComm> comms(run.ranks);
  std::vector<int> toParent(searched * nodes), toChild0(searched * nodes), toChild1(searched * nodes);
  for (int place = 0; place < run.ranks; place++) {
    const int node = place / run.ranksPerNode, first = node * run.ranksPerNode;
    ncclComm& comm = comms[run.order[place]];
    comm = {searched, nodes, node, run.order[place], run.ranks, {}};
    for (ncclChannel& channel : comm.channels) channel.tree = {0, -1, {-1, -1, -1}};
    for (int c = 0; c < searched; c++) {
      TopoRanks topo;
      preset(&comm.channels[c], &topo, c, &run.order[first], place - first,
             std::min(run.ranksPerNode, run.ranks - first), run.pattern);
      comm.channels[searched + c] = comm.channels[c];
      toParent[c * nodes + node] = topo.treeToParent[c];
      toChild0[c * nodes + node] = topo.treeToChild0[c];
      toChild1[c * nodes + node] = topo.treeToChild1[c];
    }
  }
  for (ncclComm& comm : comms) connectTrees(&comm, toParent.data(), toChild0.data(), toChild1.data(), nullptr);
  return comms;
}

template <typename T, int Proto> static void reduce(const Run& run, ncclDevWorkColl* work) {
  if (run.ring()) return runRing<T, int, Protocol<Proto>>(0, 512, work);
  // The root reduces and broadcasts at once; on other ranks the first threads reduce, the last ones broadcast.
  runTreeSplit<T, int, Protocol<Proto>>(0, 512, work);
  if (ncclShmem.channel.tree.up != -1) runTreeSplit<T, int, Protocol<Proto>>(511, 512, work);
}

template <typename T> static void reduce(const Run& run, ncclDevWorkColl* work) {
  switch (run.protocol) {
    case NCCL_PROTO_LL: return reduce<T, NCCL_PROTO_LL>(run, work);
    case NCCL_PROTO_LL128: return reduce<T, NCCL_PROTO_LL128>(run, work);
    default: return reduce<T, NCCL_PROTO_SIMPLE>(run, work);
  }
}

static void reduce(const Run& run, ncclDevWorkColl* work) {
  switch (run.elementBytes) {
    case 1: return reduce<int8_t>(run, work);
    case 2: return reduce<int16_t>(run, work);
    case 4: return reduce<int32_t>(run, work);
    default: return reduce<int64_t>(run, work);
  }
}

static void print(const Run& run) {
  ncclDevWorkColl work = divide(run);
  const std::vector<ncclComm> comms = connect(run);
  const int zero = std::find(run.order.begin(), run.order.end(), 0) - run.order.begin();
  ncclShmem.comm.nRanks = run.ranks;
  for (int channel = work.channelLo; channel <= work.channelHi; channel++) {
    for (int place = 0; place < run.ranks; place++) {
      rankOfSteps = run.order[place];
      ncclShmem.channelId = channel;
      ncclShmem.channel = comms[rankOfSteps].channels[channel];
      ncclShmem.channel.ring = {run.order[(place + run.ranks - 1) % run.ranks], run.order[(place + 1) % run.ranks],
                                (place - zero + run.ranks) % run.ranks};
      reduce(run, &work);
    }
  }
  std::sort(steps.begin(), steps.end());
  for (const std::string& step : steps) puts(step.c_str());
  steps.clear();
}

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    Run run;
    in >> run.algorithm >> run.ranks >> run.channels >> run.protocol >> run.count >> run.elementBytes >>
        run.chunkBytes >> run.ranksPerNode >> run.pattern;
    for (int rank; in >> rank;) run.order.push_back(rank);
    puts(line.c_str());
    print(run);
  }
}
