package io.nccl4j.examples.training;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.util.List;

/** Ranks of the reference, in threads of this process. */
final class ReferenceRanks {
  /** What a rank does. */
  interface Body<T> {
    T run(Communicator comm) throws Exception;
  }

  private ReferenceRanks() {}

  /** Returns what each rank has returned, in the order of the ranks. */
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
