package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.RankFailure;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The exceptions of each rank when one rank fails, leaves, is missing or calls differently. */
class FaultsTest {
  private static final Duration SOON = Duration.ofSeconds(1);

  /** For a rank that calls when only the missing one has not called. */
  private static final CommunicatorConfig LAST = CommunicatorConfig.defaults().withTimeout(SOON);

  private static final CommunicatorConfig LATE =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));
  private static final ReferenceOptions OPTIONS = ReferenceOptions.defaults();

  /** A call of one rank that differs from that of the others. */
  record Odd(String description, Ranks.Program call) {
    @Override
    public String toString() {
      return description;
    }
  }

  static List<Odd> oddCalls() {
    return List.of(
        new Odd(
            "allReduce(count 8, FLOAT32, max)",
            (comm, stream) -> {
              Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
              comm.allReduce(data, data, ReduceOp.MAX, stream);
            }),
        new Odd(
            "allReduce(count 9, FLOAT32, sum)",
            (comm, stream) -> {
              Buffer data = comm.newBuffer(DataType.FLOAT32, 9);
              comm.allReduce(data, data, ReduceOp.SUM, stream);
            }),
        new Odd(
            "allReduce(count 8, INT32, sum)",
            (comm, stream) -> {
              Buffer data = comm.newBuffer(DataType.INT32, 8);
              comm.allReduce(data, data, ReduceOp.SUM, stream);
            }),
        new Odd(
            "broadcast(count 8, FLOAT32, root 2)",
            (comm, stream) -> comm.broadcast(comm.newBuffer(DataType.FLOAT32, 8), 2, stream)),
        new Odd(
            "allToAll(count 2, FLOAT32)",
            (comm, stream) ->
                comm.allToAll(
                    comm.newBuffer(DataType.FLOAT32, 8),
                    comm.newBuffer(DataType.FLOAT32, 8),
                    stream)));
  }

  @ParameterizedTest
  @MethodSource("oddCalls")
  void differingCallIsReportedToEveryRank(Odd differing) {
    Ranks.run(
        4,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
          if (comm.rank() == 2) {
            differing.call.run(comm, stream);
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclInvalidUsageException thrown =
              assertThrows(NcclInvalidUsageException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("rank 2 called " + differing.description),
              thrown::toString);
          assertTrue(
              thrown.getMessage().contains("called allReduce(count 8, FLOAT32, sum)"),
              thrown::toString);
          assertEquals(NcclInvalidUsageException.class, comm.asyncError().orElseThrow().getClass());
        });
  }

  @Test
  void missingRankIsNamedByAllThatWaited() {
    CyclicBarrier entered = new CyclicBarrier(3);
    CyclicBarrier over = new CyclicBarrier(4);
    Ranks.run(
        4,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
          if (comm.rank() != 2) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            // A rank that is late, because the machine is slow, would be named as well.
            Ranks.awaitEntered(comm, 1);
            entered.await(20, TimeUnit.SECONDS);
            Ranks.setTimeout(comm, SOON);
            NcclTimeoutException thrown =
                assertThrows(NcclTimeoutException.class, stream::synchronize);
            assertTrue(
                thrown.getMessage().contains("rank 2 did not call allReduce"), thrown::toString);
            assertTrue(thrown.getMessage().contains("1.0 s"), thrown::toString);
          }
          over.await(20, TimeUnit.SECONDS);
          if (comm.rank() == 2) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            NcclRemoteException thrown =
                assertThrows(NcclRemoteException.class, stream::synchronize);
            assertTrue(
                thrown.getMessage().contains("gave up waiting for this rank"), thrown::toString);
          }
        });
  }

  @Test
  void timeOut_namesCommunicatorAndNumber() {
    CyclicBarrier over = new CyclicBarrier(2);
    Ranks.run(
        2,
        OPTIONS,
        LATE.withName("drill"),
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          stream.synchronize();
          if (comm.rank() == 0) {
            Ranks.setTimeout(comm, SOON);
            comm.broadcast(data, 0, stream);
            String message =
                assertThrows(NcclTimeoutException.class, stream::synchronize).getMessage();
            assertTrue(message.contains("collective 2 of " + comm), message);
          }
          over.await(20, TimeUnit.SECONDS);
        });
  }

  /**
   * Returns the configuration of a rank that calls split or shrink. The last rank waits until the
   * first one has called, which would be named as well otherwise.
   */
  private static CommunicatorConfig firstOrLast(boolean last, CompletableFuture<Thread> first)
      throws Exception {
    if (!last) {
      first.complete(Thread.currentThread());
      return LATE;
    }
    Thread thread = first.get(20, TimeUnit.SECONDS);
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (Arrays.stream(thread.getStackTrace())
        .noneMatch(frame -> frame.getMethodName().equals("awaitAssignment"))) {
      assertFalse(deadline.passed(), "the first rank does not wait");
      Thread.sleep(1);
    }
    return LAST;
  }

  @Test
  void shrinkWithoutARank_namesRanksOfTheParent() {
    CompletableFuture<Thread> first = new CompletableFuture<>();
    CyclicBarrier over = new CyclicBarrier(4);
    Ranks.run(
        4,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() % 2 == 1) {
            CommunicatorConfig config = firstOrLast(comm.rank() == 3, first);
            NcclException thrown =
                assertThrows(
                    NcclTimeoutException.class,
                    () -> comm.shrink(Set.of(0), ShrinkMode.FINISH_FIRST, config));
            assertEquals(Set.of(2), thrown.missingRanks());
            assertEquals(Set.of(), thrown.failedRanks());
            assertEquals(Optional.empty(), thrown.operation());
            assertTrue(thrown.getMessage().contains(comm.toString()), thrown::toString);
          }
          over.await(20, TimeUnit.SECONDS);
        });
  }

  /** A wait that is shorter than the timeout of the communicator names the same ranks. */
  @ParameterizedTest(name = "a send: {0}")
  @ValueSource(booleans = {false, true})
  void shortWait_namesTheMissingRank(boolean send) {
    CyclicBarrier found = new CyclicBarrier(send ? 1 : 2);
    CyclicBarrier over = new CyclicBarrier(3);
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() == 2 || (send && comm.rank() == 1)) {
            over.await(20, TimeUnit.SECONDS);
            return;
          }
          Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
          if (send) {
            comm.send(data, 2, stream);
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclTimeoutException thrown;
          long start = System.nanoTime();
          do { // A busy machine may not answer at once.
            thrown =
                assertThrows(
                    NcclTimeoutException.class, () -> stream.synchronize(Duration.ofMillis(300)));
          } while (thrown.missingRanks().isEmpty()
              && System.nanoTime() - start < TimeUnit.SECONDS.toNanos(15));
          found.await(20, TimeUnit.SECONDS);
          comm.abort();
          over.await(20, TimeUnit.SECONDS);
          assertEquals(Set.of(2), thrown.missingRanks(), thrown::toString);
          assertTrue(
              thrown
                  .getMessage()
                  .contains(
                      send ? "waited for rank 2 to receive" : "rank 2 did not call allReduce("),
              thrown::toString);
        });
  }

  @Test
  void abortIsReportedToTheOthers() {
    CountDownLatch waiting = new CountDownLatch(2);
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
          if (comm.rank() == 2) {
            waiting.await();
            Thread.sleep(50);
            comm.abort();
            return;
          }
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          waiting.countDown();
          NcclRemoteException thrown = assertThrows(NcclRemoteException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("rank 2 aborted its communicator"), thrown::toString);
        });
  }

  /** An abort may happen after a wait has checked for it, and before it checks the others. */
  @Test
  void abortedRankReportsItsOwnAbort() {
    Ranks.run(
        1,
        ReferenceOptions.defaults(),
        (comm, stream) -> {
          HostedRank hostedRank =
              ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank();
          NcclException remote = RankFailure.remote("allReduce", "rank 0 aborted its communicator");
          comm.abort();
          NcclException reported = hostedRank.fail("allReduce", remote);
          assertEquals(CommunicatorAbortedException.class, reported.getClass());
          assertSame(remote, reported.getCause());
          assertNull(hostedRank.communicator().failure());
        });
  }

  @Test
  void abortedWaitThrowsAborted() {
    CountDownLatch over = new CountDownLatch(1);
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() == 0) {
            Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            Thread.sleep(50);
            comm.abort();
            assertThrows(CommunicatorAbortedException.class, stream::synchronize);
            stream.synchronize();
            assertTrue(stream.isComplete(), "the stream continues");
            over.countDown();
          } else {
            over.await(20, TimeUnit.SECONDS);
          }
        });
  }

  @Test
  void closedRankIsNamed() {
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() != 1) {
            Buffer data = comm.newBuffer(DataType.FLOAT32, 8);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            NcclRemoteException thrown =
                assertThrows(NcclRemoteException.class, stream::synchronize);
            assertTrue(
                thrown.getMessage().contains("rank 1 closed its communicator"), thrown::toString);
          }
        });
  }

  @Test
  void differingMessagesAreReportedOnBothSides() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(comm.rank() == 0 ? DataType.FLOAT32 : DataType.INT32, 6);
          if (comm.rank() == 0) {
            comm.send(data, 1, stream);
          } else {
            comm.recv(data.slice(0, 5), 0, stream);
          }
          NcclInvalidUsageException thrown =
              assertThrows(NcclInvalidUsageException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("rank 0 sends 6 x FLOAT32, rank 1 receives 5 x INT32"),
              thrown::toString);
        });
  }

  @Test
  void messageToARankInACollectiveIsAMismatch() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 6);
          if (comm.rank() == 0) {
            comm.send(data, 1, stream);
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclInvalidUsageException thrown =
              assertThrows(NcclInvalidUsageException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("rank 1 is in allReduce(count 6, FLOAT32, sum)"),
              thrown::toString);
        });
  }

  @Test
  void failedMessageBesideACollective_isReportedAsTheMessage() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 6);
          Buffer message = comm.newBuffer(DataType.FLOAT32, 6);
          if (comm.rank() == 1) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
            return;
          }
          Group.run(
              () -> {
                comm.recv(message, 1, stream);
                comm.allReduce(data, data, ReduceOp.SUM, stream);
              });
          NcclException thrown = assertThrows(NcclRemoteException.class, stream::synchronize);
          assertEquals("recv", thrown.function());
          assertEquals(Optional.of(Operation.RECV), thrown.operation());
          assertEquals(OptionalLong.empty(), thrown.sequenceNumber());
          assertEquals(Set.of(1), thrown.failedRanks());
        });
  }

  @Test
  void unmatchedSelfMessageIsRefused() {
    Ranks.run(
        1,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 6);
          assertThrows(
              NcclInvalidUsageException.class, () -> Group.run(() -> comm.send(data, 0, stream)));
          assertThrows(
              NcclInvalidUsageException.class, () -> Group.run(() -> comm.recv(data, 0, stream)));
          stream.synchronize();
        });
  }

  @Test
  void operationOnAFailedCommunicatorFails() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 4 + comm.rank());
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          NcclException first = assertThrows(NcclException.class, stream::synchronize);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          NcclException second = assertThrows(NcclException.class, stream::synchronize);
          assertTrue(second.getMessage().contains("failed before"), second::toString);
          assertEquals(first.getMessage(), comm.asyncError().orElseThrow().getMessage());
        });
  }

  @Test
  void everyWaitReportsTheFailureUntilClosed() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 4 + comm.rank());
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          Class<NcclInvalidUsageException> mismatch = NcclInvalidUsageException.class;
          NcclException first = assertThrows(mismatch, stream::synchronize);
          NcclException second = assertThrows(mismatch, stream::synchronize);
          assertNotSame(first, second, "each may be suppressed in the other");
          assertThrows(mismatch, stream::isComplete);
          ExecutionException stage =
              assertThrows(
                  ExecutionException.class,
                  () -> stream.completion().toCompletableFuture().get(20, TimeUnit.SECONDS));
          assertInstanceOf(mismatch, stage.getCause());
          byte[] bytes = new byte[(int) data.byteSize()];
          assertThrows(mismatch, () -> data.copyTo(MemorySegment.ofArray(bytes), stream));
          NcclException closing = assertThrows(mismatch, comm::close);
          assertEquals(first.getMessage(), closing.getMessage());
          assertTrue(comm.isAborted());
          assertThrows(CommunicatorAbortedException.class, stream::synchronize);
          stream.synchronize();
        });
  }

  @Test
  void manyCommunicatorsOnOneStreamLeaveNoThread() {
    Backend backend = ReferenceBackend.open(1);
    int threads = 0;
    try (Stream stream = backend.newStream(0);
        Buffer data = backend.newBuffer(0, DataType.INT32, 1)) {
      for (int i = 0; i < 500; i++) {
        Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, LATE);
        comm.allReduce(data, data, ReduceOp.SUM, stream);
        if (i % 2 == 0) {
          comm.close();
        } else {
          stream.synchronize();
          comm.abort();
          assertThrows(CommunicatorAbortedException.class, stream::synchronize);
        }
        threads = i == 0 ? Thread.activeCount() : threads;
      }
      // Threads of earlier tests may end during this test.
      assertTrue(Thread.activeCount() <= threads + 1, () -> "" + Thread.activeCount());
      assertEquals(0, ProcessEndpoint.ofThisProcess().openTargets());
    }
  }

  @Test
  void splitWithoutARankNamesIt() {
    CompletableFuture<Thread> first = new CompletableFuture<>();
    CyclicBarrier over = new CyclicBarrier(3);
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() != 1) {
            CommunicatorConfig config = firstOrLast(comm.rank() == 2, first);
            NcclTimeoutException thrown =
                assertThrows(NcclTimeoutException.class, () -> comm.split(0, 0, config));
            assertTrue(thrown.getMessage().contains("rank 1 did not call split"), thrown::toString);
          }
          over.await(20, TimeUnit.SECONDS);
          if (comm.rank() == 1) {
            assertInstanceOf(
                NcclRemoteException.class,
                assertThrows(NcclException.class, () -> comm.split(0, 0)));
          }
        });
  }
}
