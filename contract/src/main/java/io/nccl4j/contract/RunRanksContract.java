package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@link Backend#runRanks}: one thread for each rank, and one failure that ends all. */
abstract class RunRanksContract {
  /** How long the release of all ranks may take on a busy machine; their own timeout is longer. */
  private static final Duration SOON = Duration.ofSeconds(15);

  private static final Duration LONG = Duration.ofMinutes(2);

  abstract BackendUnderTest underTest();

  /** What a rank does while another one fails. */
  private interface Blocked {
    void run(Communicator comm, Stream stream, Buffer buffer) throws Exception;
  }

  private CommunicatorConfig config() {
    return underTest().config().withTimeout(LONG);
  }

  @Test
  void everyRankRunsOnceAndIsClosed() {
    int n = Math.min(3, underTest().maxRanks());
    AtomicIntegerArray sums = new AtomicIntegerArray(n);
    AtomicReference<Communicator> last = new AtomicReference<>();
    try (Backend backend = underTest().open(n)) {
      backend.runRanks(
          n,
          comm -> {
            assertEquals(comm.rank() % backend.devices().size(), comm.device());
            last.set(comm);
            int[] values = {comm.rank() + 1};
            try (Stream stream = comm.newStream();
                Buffer buffer = comm.newBuffer(DataType.INT32, 1)) {
              buffer.copyFromAsync(values, stream);
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              buffer.copyTo(values, stream);
            }
            sums.addAndGet(comm.rank(), values[0]);
          },
          config());
    }
    for (int rank = 0; rank < n; rank++) {
      assertEquals(n * (n + 1) / 2, sums.get(rank), "rank " + rank);
    }
    assertFalse(last.get().isOpen());
  }

  @Test
  void failureReleasesRanksInACollective() {
    assertReleased(
        (comm, stream, buffer) -> {
          comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
          stream.synchronize();
        });
  }

  @Test
  void failureReleasesRanksInACopy() {
    assertReleased(
        (comm, stream, buffer) -> {
          comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
          buffer.copyTo(new int[1], stream);
        });
  }

  @Test
  void failureReleasesRanksThatConnect() {
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      assertReleased(
          backend, (comm, stream, buffer) -> backend.newCommunicator(id, 2, 1, config()).close());
      backend.closeUniqueId(id);
    }
  }

  @Test
  void failureReleasesRanksInARendezvous(@TempDir Path directory) {
    try (Backend backend = underTest().open(2)) {
      assertReleased(
          backend,
          (comm, stream, buffer) -> {
            RankInfo rank = RankInfo.of(comm.rank(), 2).withTimeout(LONG);
            try (Rendezvous rendezvous = Rendezvous.files(directory, rank)) {
              rendezvous.newCommunicator(backend, config()).close();
            }
          });
    }
  }

  @Test
  void failureEndsRanksThatHaveReturned() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    IOException thrown = new IOException("rank 0 fails");
    CountDownLatch returning = new CountDownLatch(1);
    AtomicReference<Communicator> returned = new AtomicReference<>();
    try (Backend backend = underTest().open(2)) {
      Backend.RankBody<Exception> body =
          comm -> {
            if (comm.rank() == 0) {
              assertTrue(returning.await(SOON.toSeconds(), TimeUnit.SECONDS));
              throw thrown;
            }
            returned.set(comm);
            returning.countDown();
          };
      assertTimeoutPreemptively(
          SOON,
          () ->
              assertSame(
                  thrown,
                  assertThrows(IOException.class, () -> backend.runRanks(2, body, config()))));
      assertTrue(returned.get().isAborted());
    }
  }

  private void assertReleased(Blocked blocked) {
    try (Backend backend = underTest().open(2)) {
      assertReleased(backend, blocked);
    }
  }

  /** Lets rank 0 fail while rank 1 is blocked; the failure is thrown, with that of rank 1 in it. */
  private void assertReleased(Backend backend, Blocked blocked) {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    IOException thrown = new IOException("rank 0 fails");
    CountDownLatch about = new CountDownLatch(1);
    Backend.RankBody<Exception> body =
        comm -> {
          if (comm.rank() == 0) {
            about.await();
            Thread.sleep(100);
            throw thrown;
          }
          try (Stream stream = comm.newStream();
              Buffer buffer = comm.newBuffer(DataType.INT32, 1)) {
            about.countDown();
            blocked.run(comm, stream, buffer);
          }
        };
    assertTimeoutPreemptively(
        SOON,
        () ->
            assertSame(
                thrown,
                assertThrows(IOException.class, () -> backend.runRanks(2, body, config()))));
    assertEquals(
        1, thrown.getSuppressed().length, () -> List.of(thrown.getSuppressed()).toString());
  }

  @Test
  void interruptEndsTheRanksAndIsKept() throws InterruptedException {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CountDownLatch ended = new CountDownLatch(2);
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    AtomicBoolean interrupted = new AtomicBoolean();
    try (Backend backend = underTest().open(2)) {
      CountDownLatch begun = new CountDownLatch(2);
      Thread caller =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      backend.runRanks(
                          2,
                          comm -> {
                            begun.countDown();
                            try {
                              new CountDownLatch(1).await();
                            } finally {
                              ended.countDown();
                            }
                          },
                          config());
                    } catch (Throwable e) {
                      thrown.set(e);
                      interrupted.set(Thread.currentThread().isInterrupted());
                    }
                  });
      assertTrue(begun.await(SOON.toSeconds(), TimeUnit.SECONDS));
      caller.interrupt();
      assertTrue(caller.join(SOON));
    }
    assertInstanceOf(CancellationException.class, thrown.get());
    assertTrue(interrupted.get());
    assertEquals(0, ended.getCount());
  }

  @Test
  void numberOfRanksMustBePositive() {
    try (Backend backend = underTest().open(1)) {
      assertEquals(
          "ranks is 0; it must be 1 or more",
          assertThrows(IllegalArgumentException.class, () -> backend.runRanks(0, comm -> {}))
              .getMessage());
    }
  }

  @Test
  void groupOfTheCallerIsRefused() {
    try (Backend backend = underTest().open(1)) {
      assertEquals(
          "runRanks cannot be called in a group",
          assertThrows(
                  IllegalStateException.class,
                  () -> Group.run(() -> backend.runRanks(1, comm -> {})))
              .getMessage());
    }
  }
}
