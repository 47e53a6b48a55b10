/*
 * Gloo's all-reduce between processes that this program starts, over TCP on the loopback interface. The first two algorithms
 * are those of gloo::allreduce, the others Gloo's older classes, which sum in place. The older bcube is left out: with more
 * than two ranks, it may overwrite data that a peer has not read yet.
 *
 *   gloo RANKS ring|bcube|old_ring|ring_chunked|halving_doubling MODE... SIZE...
 */
#include "measure.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using gloo::AllreduceOptions;

class Reducer {
 public:
  Reducer(std::shared_ptr<gloo::Context> context, std::string algorithm)
      : context_(std::move(context)), algorithm_(std::move(algorithm)) {}

  bool in_place() const {
    return algorithm_ != "ring" && algorithm_ != "bcube";
  }

  void all_reduce(float *send, float *recv, size_t count) {
    if (in_place()) {
      older(recv, count).run();
    } else {
      gloo::allreduce(options(send, recv, count));
    }
  }

  double maximum(double value) {
    AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) { gloo::max<double>(to, a, b, n); });
    gloo::allreduce(options);
    return value;
  }

 private:
  AllreduceOptions &options(float *send, float *recv, size_t count) {
    auto &found = options_[count];
    if (!found) {
      found = std::make_unique<AllreduceOptions>(context_);
      found->setAlgorithm(algorithm_ == "ring" ? AllreduceOptions::Algorithm::RING : AllreduceOptions::Algorithm::BCUBE);
      found->setInput(send, count);
      found->setOutput(recv, count);
      found->setReduceFunction([](void *to, const void *a, const void *b, size_t n) { gloo::sum<float>(to, a, b, n); });
    }
    return *found;
  }

  gloo::Algorithm &older(float *memory, size_t count) {
    auto &found = older_[count];
    if (!found) {
      std::vector<float *> memories{memory};
      int elements = static_cast<int>(count);
      if (algorithm_ == "old_ring") {
        found = std::make_unique<gloo::AllreduceRing<float>>(context_, memories, elements);
      } else if (algorithm_ == "ring_chunked") {
        found = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, memories, elements);
      } else if (algorithm_ == "halving_doubling") {
        found = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, memories, elements);
      } else {
        die("unknown algorithm");
      }
    }
    return *found;
  }

  std::shared_ptr<gloo::Context> context_;
  std::string algorithm_;
  std::map<size_t, std::unique_ptr<AllreduceOptions>> options_;
  std::map<size_t, std::unique_ptr<gloo::Algorithm>> older_;
};

void all_reduce(void *self, float *send, float *recv, size_t count) {
  static_cast<Reducer *>(self)->all_reduce(send, recv, count);
}

double max_over_ranks(void *self, double value) {
  return static_cast<Reducer *>(self)->maximum(value);
}

void run(int rank, int ranks, const std::string &folder, int count, char **given) {
  gloo::transport::tcp::attr loopback("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(loopback);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  Reducer reducer(context, given[2]);
  measured peer = {&reducer, rank, ranks, reducer.in_place(), all_reduce, max_over_ranks};
  measure(&peer, count - 3, given + 3);
}

}  // namespace

int main(int count, char **given) {
  int ranks = count > 3 ? std::atoi(given[1]) : 0;
  if (ranks < 2) die("gloo RANKS ALGORITHM MODE... SIZE...");
  char folder[] = "/tmp/gloo-XXXXXX";
  if (!mkdtemp(folder)) die("cannot create a temporary folder");
  for (int rank = 0; rank < ranks; rank++) {
    if (fork() == 0) {
      try {
        run(rank, ranks, folder, count, given);
      } catch (const std::exception &e) {
        die(e.what());
      }
      return 0;
    }
  }
  // If one rank exits with a wrong result, the others fail because they lose their connection to it.
  int worst = 0, status;
  while (wait(&status) > 0) worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  std::filesystem::remove_all(folder);
  return worst;
}
