package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;

/** Runs the same program on every rank of a new communicator, each in its own thread. */
public final class Ranks {
  /** The program of a rank. */
  public interface Program {
    public void run(Communicator communicator, Stream stream) throws Exception;
  }

  private Ranks() {}

  public static void run(int size, ReferenceOptions options, Program program) {
    run(size, options, CommunicatorConfig.defaults(), program);
  }

  public static void run(
      int size, ReferenceOptions options, CommunicatorConfig config, Program program) {
    run(size, ReferenceBackend.open(size, options), config, program);
  }

  static void run(int size, Backend backend, CommunicatorConfig config, Program program) {
    UniqueId id = backend.newUniqueId();
    RankThreads.run(
        size,
        rank -> {
          Communicator communicator = backend.newCommunicator(id, size, rank, config);
          try (Stream stream = communicator.newStream()) {
            program.run(communicator, stream);
          } finally {
            end(communicator);
          }
        });
  }

  /** Closes a communicator; aborts it first if an operation has failed. */
  private static void end(Communicator communicator) {
    if (communicator.isOpen() && communicator.asyncError().isPresent()) {
      communicator.abort();
    }
    communicator.close();
  }
}
