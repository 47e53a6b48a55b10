package io.nccl4j.adapters;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;

/** Runs two ranks of the reference backend in threads of this process, for the adapters' tests. */
public final class TwoRanks {
  /** The program of a rank. */
  public interface Body {
    void run(Communicator comm, Stream stream) throws Exception;
  }

  private TwoRanks() {}

  public static void run(Body body) {
    run(2, body);
  }

  /** Runs a body on a single rank. */
  public static void one(Body body) {
    run(1, body);
  }

  private static void run(int size, Body body) {
    try (Backend backend = Backend.reference(size)) {
      UniqueId id = backend.newUniqueId();
      RankThreads.run(
          size,
          rank -> {
            try (Communicator comm =
                    backend.newCommunicator(id, size, rank, CommunicatorConfig.defaults());
                Stream stream = comm.newStream()) {
              body.run(comm, stream);
            }
          });
    }
  }
}
