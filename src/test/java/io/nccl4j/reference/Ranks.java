package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/** Runs the same program on every rank of a new communicator, each in a thread of its own. */
public final class Ranks {
  /** What one rank does. */
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
    List<FutureTask<Void>> ranks = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      int self = rank;
      FutureTask<Void> task =
          new FutureTask<>(
              () -> {
                Communicator communicator = backend.communicator(id, size, self, config);
                try (Stream stream = communicator.newStream()) {
                  program.run(communicator, stream);
                } finally {
                  end(communicator);
                }
                return null;
              });
      ranks.add(task);
      Thread.ofPlatform().daemon().name("rank-" + rank).start(task);
    }
    finish(ranks);
  }

  /** Closes a communicator; where something has failed, all that is left is to abort it. */
  private static void end(Communicator communicator) {
    if (communicator.open() && communicator.asyncError().isPresent()) {
      communicator.abort();
    }
    communicator.close();
  }

  private static void finish(List<FutureTask<Void>> ranks) {
    AssertionError first = null;
    for (int rank = 0; rank < ranks.size(); rank++) {
      try {
        ranks.get(rank).get(60, TimeUnit.SECONDS);
      } catch (ExecutionException e) {
        AssertionError failure = new AssertionError("rank " + rank + ": " + e.getCause(), e);
        if (first == null) {
          first = failure;
        } else {
          first.addSuppressed(failure);
        }
      } catch (Exception e) {
        throw new AssertionError("rank " + rank + " did not end", e);
      }
    }
    if (first != null) {
      throw first;
    }
  }
}
