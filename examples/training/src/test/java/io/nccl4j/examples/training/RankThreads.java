package io.nccl4j.examples.training;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Ranks of the reference, in threads of this process. */
final class RankThreads {
  /** What a rank does. */
  interface Body<T> {
    T run(Communicator comm) throws Exception;
  }

  private RankThreads() {}

  /** Returns what each rank has returned, in the order of the ranks. */
  static <T> List<T> run(int size, Body<T> body) throws Exception {
    try (Backend backend = Backend.reference(size);
        ExecutorService threads = Executors.newFixedThreadPool(size)) {
      UniqueId id = backend.newUniqueId();
      List<Callable<T>> ranks = new ArrayList<>();
      for (int r = 0; r < size; r++) {
        int rank = r;
        ranks.add(
            () -> {
              try (Communicator comm =
                  backend.communicator(id, size, rank, CommunicatorConfig.defaults())) {
                return body.run(comm);
              }
            });
      }
      List<T> results = new ArrayList<>();
      for (Future<T> result : threads.invokeAll(ranks)) {
        results.add(result.get());
      }
      return results;
    }
  }
}
