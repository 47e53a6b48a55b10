package io.nccl4j.examples.training;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.util.List;

/** Runs ranks of the reference backend in threads of this process. */
final class ReferenceRanks {
  /** The program of a rank. */
  interface Body<T> {
    T run(Communicator comm) throws Exception;
  }

  private ReferenceRanks() {}

  /** Returns the results in rank order. */
  static <T> List<T> run(int size, Body<T> body) {
    try (Backend backend = Backend.reference(size)) {
      UniqueId id = backend.newUniqueId();
      return RankThreads.call(
          size,
          rank -> {
            try (Communicator comm =
                backend.newCommunicator(id, size, rank, CommunicatorConfig.defaults())) {
              return body.run(comm);
            }
          });
    }
  }
}
