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
 * The rank of this process when the suite runs in several processes at once, each of which drives
 * one rank of its communicators. {@code -Dtest.process.rank=} is the rank, {@code -Dtest.ranks=}
 * the number of processes, and {@code -Dtest.process.folder=} a folder that they share for this
 * run. All processes need the same {@code -Dtest.seed=}.
 *
 * <p>All processes run the same tests in the same order. They exchange unique ids by the test's
 * name, so that a test that fails in one process does not desynchronize the following tests.
 */
final class ProcessRank implements BeforeEachCallback {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private static final Duration POLL_INTERVAL = Duration.ofMillis(5);

  private static String test = "none";
  private static int idCount;

  private final int rank = Integer.getInteger("test.process.rank", -1);

  @Override
  public void beforeEach(ExtensionContext context) {
    test = context.getUniqueId();
    idCount = 0;
  }

  /** Returns this process's rank, or empty if the suite runs in one process. */
  static Optional<Integer> current() {
    int rank = new ProcessRank().rank;
    return rank < 0 ? Optional.empty() : Optional.of(rank);
  }

  /** Skips the test unless {@code ranks} is the number of processes. */
  static void assumeSize(int ranks) {
    Assumptions.assumeTrue(
        ranks == Integer.getInteger("test.ranks"),
        "needs another number of ranks than there are processes");
  }

  /** Skips the test if it needs {@code ranks} ranks in this process and there are others. */
  static void assumeNone(int ranks) {
    Assumptions.assumeTrue(
        ranks == 1 || current().isEmpty(), "needs ranks that are in another process of this run");
  }

  /** Returns the id that the process of rank 0 creates in the corresponding call. */
  static UniqueId shareId(Supplier<UniqueId> newId) {
    Path file = idFile();
    try {
      if (current().orElseThrow() == 0) {
        UniqueId id = newId.get();
        Files.createDirectories(file.getParent());
        Path unfinished = Files.createTempFile(file.getParent(), "id", "");
        Files.write(unfinished, id.toBytes());
        Files.move(unfinished, file, StandardCopyOption.ATOMIC_MOVE);
        return id;
      }
      await(file);
      return UniqueId.of(Files.readAllBytes(file));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static Path idFile() {
    Path folder = Path.of(System.getProperty("test.process.folder"));
    byte[] name = (test + " " + idCount++).getBytes(StandardCharsets.UTF_8);
    return folder.resolve(UUID.nameUUIDFromBytes(name) + ".id");
  }

  private static void await(Path file) {
    long end = System.nanoTime() + TIMEOUT.toNanos();
    while (!Files.exists(file)) {
      if (System.nanoTime() > end) {
        throw new AssertionError(
            "the process of rank 0 did not create an id for " + test + " within " + TIMEOUT);
      }
      try {
        Thread.sleep(POLL_INTERVAL);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new AssertionError("interrupted while waiting for rank 0", e);
      }
    }
  }
}
