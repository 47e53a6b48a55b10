package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.time.Duration;

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

  /**
   * Sets the timeout of this rank's operations from now on. A test whose communicator is created
   * with a long timeout can then wait for a short one: creation may take long on a slow machine.
   */
  static void setTimeout(Communicator communicator, Duration timeout) {
    hostedRank(communicator).configure(timeout, communicator.toString());
  }

  /** Waits until this rank has entered its first collectives, so that no other misses it. */
  static void awaitEntered(Communicator communicator, int collectives) throws InterruptedException {
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (hostedRank(communicator).entered() < collectives) {
      if (deadline.passed()) {
        throw new AssertionError("the rank did not enter the collective: " + communicator);
      }
      Thread.sleep(1);
    }
  }

  private static HostedRank hostedRank(Communicator communicator) {
    return ((ReferenceCommunicator) Contract.get().driver(communicator)).hostedRank();
  }

  /** Closes a communicator; aborts it first if an operation has failed. */
  private static void end(Communicator communicator) {
    if (communicator.isOpen() && communicator.asyncError().isPresent()) {
      communicator.abort();
    }
    communicator.close();
  }
}
