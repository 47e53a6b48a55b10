package io.nccl4j.contract;

import io.nccl4j.UniqueId;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Optional;
import java.util.UUID;
import java.util.function.Supplier;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Which rank this process is, where a suite runs in several processes at once and each drives one
 * rank of its communicators: {@code -Dtest.process.rank=0} in one, 1 in the next, with as many of
 * them as {@code -Dtest.ranks=} says, the same {@code -Dtest.seed=}, and a folder of the run in
 * {@code -Dtest.process.folder=}.
 *
 * <p>All processes run the same tests in the same order. They meet by the test's name, so that a
 * test which fails in one process does not set those after it apart.
 */
final class ProcessRank implements BeforeEachCallback {
  private static final Duration MEETING = Duration.ofSeconds(30);
  private static final Duration LOOK = Duration.ofMillis(5);

  private static String test = "none";
  private static int meetings;

  private final int rank = Integer.getInteger("test.process.rank", -1);

  @Override
  public void beforeEach(ExtensionContext context) {
    test = context.getUniqueId();
    meetings = 0;
  }

  /** Returns this process's rank, if there are others. */
  static Optional<Integer> current() {
    int rank = new ProcessRank().rank;
    return rank < 0 ? Optional.empty() : Optional.of(rank);
  }

  /** Skips a test whose communicator has another number of ranks than there are processes. */
  static void assumeSize(int ranks) {
    Assumptions.assumeTrue(
        ranks == Integer.getInteger("test.ranks"),
        "needs another number of ranks than there are processes");
  }

  /** Skips a test that needs all of so many ranks in this process. */
  static void assumeNone(int ranks) {
    Assumptions.assumeTrue(
        ranks == 1 || current().isEmpty(), "needs ranks that are in another process of this run");
  }

  /** Returns the id that the process of rank 0 makes when it comes to the same place. */
  static UniqueId meet(Supplier<UniqueId> newId) {
    Path place = place();
    try {
      if (current().orElseThrow() == 0) {
        UniqueId id = newId.get();
        Files.createDirectories(place.getParent());
        Path unfinished = Files.createTempFile(place.getParent(), "id", "");
        Files.write(unfinished, id.toBytes());
        Files.move(unfinished, place, StandardCopyOption.ATOMIC_MOVE);
        return id;
      }
      await(place);
      return UniqueId.of(Files.readAllBytes(place));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Path place() {
    Path folder = Path.of(System.getProperty("test.process.folder"));
    byte[] name = (test + " " + meetings++).getBytes(StandardCharsets.UTF_8);
    return folder.resolve(UUID.nameUUIDFromBytes(name) + ".id");
  }

  private static void await(Path place) {
    long end = System.nanoTime() + MEETING.toNanos();
    while (!Files.exists(place)) {
      if (System.nanoTime() > end) {
        throw new AssertionError(
            "the process of rank 0 has not come to " + test + " within " + MEETING);
      }
      try {
        Thread.sleep(LOOK);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new AssertionError("interrupted while waiting for rank 0", e);
      }
    }
  }
}
