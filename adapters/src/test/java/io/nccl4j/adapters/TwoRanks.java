package io.nccl4j.adapters;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Two ranks of the reference, in threads of this process, for the tests of each adapter. */
public final class TwoRanks {
  /** What a rank does. */
  public interface Body {
    void run(Communicator comm, Stream stream) throws Exception;
  }

  private TwoRanks() {}

  public static void run(Body body) throws Exception {
    try (Backend backend = Backend.reference(2);
        ExecutorService threads = Executors.newFixedThreadPool(2)) {
      UniqueId id = backend.newUniqueId();
      List<Callable<Void>> ranks = new ArrayList<>();
      for (int r = 0; r < 2; r++) {
        int rank = r;
        ranks.add(
            () -> {
              try (Communicator comm =
                      backend.communicator(id, 2, rank, CommunicatorConfig.defaults());
                  Stream stream = comm.newStream()) {
                body.run(comm, stream);
              }
              return null;
            });
      }
      for (Future<Void> rank : threads.invokeAll(ranks)) {
        rank.get();
      }
    }
  }

  /** Runs a body on one rank alone. */
  public static void one(Body body) throws Exception {
    try (Backend backend = Backend.reference(1);
        Communicator comm =
            backend.communicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Stream stream = comm.newStream()) {
      body.run(comm, stream);
    }
  }
}
