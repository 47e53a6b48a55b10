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
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.Doorway;
import io.nccl4j.internal.reference.bootstrap.Gathering;
import io.nccl4j.internal.reference.bootstrap.Site;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.io.BufferedReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.LogManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What each rank is told when one of them fails, leaves, stays away or calls something else. */
class FaultsTest {
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(1));
  private static final CommunicatorConfig LATE =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));
  private static final ReferenceOptions OPTIONS = ReferenceOptions.defaults();

  /** A call that one rank makes while the others make another. */
  private record Odd(String said, Ranks.Program call) {
    @Override
    public String toString() {
      return said;
    }
  }

  static List<Odd> oddCalls() {
    return List.of(
        new Odd(
            "allReduce(count 8, FLOAT32, max)",
            (comm, stream) -> {
              Buffer data = comm.allocate(DataType.FLOAT32, 8);
              comm.allReduce(data, data, ReduceOp.MAX, stream);
            }),
        new Odd(
            "allReduce(count 9, FLOAT32, sum)",
            (comm, stream) -> {
              Buffer data = comm.allocate(DataType.FLOAT32, 9);
              comm.allReduce(data, data, ReduceOp.SUM, stream);
            }),
        new Odd(
            "allReduce(count 8, INT32, sum)",
            (comm, stream) -> {
              Buffer data = comm.allocate(DataType.INT32, 8);
              comm.allReduce(data, data, ReduceOp.SUM, stream);
            }),
        new Odd(
            "broadcast(count 8, FLOAT32, root 2)",
            (comm, stream) -> comm.broadcast(comm.allocate(DataType.FLOAT32, 8), 2, stream)),
        new Odd(
            "allToAll(count 2, FLOAT32)",
            (comm, stream) ->
                comm.allToAll(
                    comm.allocate(DataType.FLOAT32, 8),
                    comm.allocate(DataType.FLOAT32, 8),
                    stream)));
  }

  @ParameterizedTest
  @MethodSource("oddCalls")
  void everyRankIsToldWhichRanksCallDifferentThings(Odd odd) {
    Ranks.run(
        4,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
          if (comm.rank() == 2) {
            odd.call.run(comm, stream);
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclInvalidUsageException thrown =
              assertThrows(NcclInvalidUsageException.class, stream::synchronize);
          assertTrue(thrown.getMessage().contains("rank 2 called " + odd.said), thrown::toString);
          assertTrue(
              thrown.getMessage().contains("called allReduce(count 8, FLOAT32, sum)"),
              thrown::toString);
          assertEquals(NcclInvalidUsageException.class, comm.asyncError().orElseThrow().getClass());
        });
  }

  @Test
  void differentRootsAreToldApart() {
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
          comm.broadcast(data, comm.rank() == 1 ? 1 : 0, stream);
          NcclInvalidUsageException thrown =
              assertThrows(NcclInvalidUsageException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("rank 1 called broadcast(count 8, FLOAT32, root 1)"),
              thrown::toString);
        });
  }

  @Test
  void aRankThatDoesNotComeIsNamedByAllThatWaited() {
    CyclicBarrier over = new CyclicBarrier(4);
    Ranks.run(
        4,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
          if (comm.rank() != 2) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
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
        SOON.withName("drill"),
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          stream.synchronize();
          if (comm.rank() == 0) {
            comm.broadcast(data, 0, stream);
            String message =
                assertThrows(NcclTimeoutException.class, stream::synchronize).getMessage();
            assertTrue(message.contains("collective 2 of " + comm), message);
          }
          over.await(20, TimeUnit.SECONDS);
        });
  }

  @Test
  void shrinkWithoutARank_missingRanksAreTheParents() {
    CyclicBarrier over = new CyclicBarrier(4);
    Ranks.run(
        4,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          if (comm.rank() % 2 == 1) {
            NcclException thrown =
                assertThrows(
                    NcclTimeoutException.class,
                    () -> comm.shrink(Set.of(0), ShrinkMode.FINISH_FIRST, SOON));
            assertEquals(Set.of(2), thrown.missingRanks());
            assertEquals(Set.of(), thrown.failedRanks());
            assertEquals(Optional.empty(), thrown.operation());
            assertTrue(thrown.getMessage().contains(comm.toString()), thrown::toString);
          }
          over.await(20, TimeUnit.SECONDS);
        });
  }

  @Test
  void lostRanks_areAddedToWhatFailedBefore() {
    CyclicBarrier step = new CyclicBarrier(3);
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
          if (comm.rank() == 2) {
            comm.abort();
          } else {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            NcclException thrown = assertThrows(NcclRemoteException.class, stream::synchronize);
            assertEquals(Set.of(2), thrown.failedRanks());
          }
          step.await(20, TimeUnit.SECONDS);
          if (comm.rank() == 1) {
            comm.abort();
          }
          step.await(20, TimeUnit.SECONDS);
          if (comm.rank() == 0) {
            NcclException now = comm.asyncError().orElseThrow();
            assertEquals(Set.of(1, 2), now.failedRanks());
            assertEquals(Optional.of(Operation.ALL_REDUCE), now.operation());
          }
        });
  }

  @Test
  void anAbortReleasesThisRankAndNamesItToTheOthers() {
    CountDownLatch waiting = new CountDownLatch(2);
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 8);
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

  /** An abort may come after a wait has looked for it, and before it looks for the others. */
  @Test
  void whoIsAbortedWhileItHearsOfOthersIsToldOfItsOwnAbort() {
    Ranks.run(
        1,
        ReferenceOptions.defaults(),
        (comm, stream) -> {
          Member member = ((ReferenceCommunicator) Contract.get().driver(comm)).member();
          NcclException heard = Fault.remote("allReduce", "rank 0 aborted its communicator");
          comm.abort();
          NcclException told = member.fail("allReduce", heard);
          assertEquals(CommunicatorAbortedException.class, told.getClass());
          assertSame(heard, told.getCause());
          assertNull(member.world().fault());
        });
  }

  @Test
  void anAbortedWaitSaysSo() {
    CountDownLatch over = new CountDownLatch(1);
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() == 0) {
            Buffer data = comm.allocate(DataType.FLOAT32, 8);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            Thread.sleep(50);
            comm.abort();
            assertThrows(CommunicatorAbortedException.class, stream::synchronize);
            stream.synchronize();
            assertTrue(stream.isComplete(), "the stream goes on");
            over.countDown();
          } else {
            over.await(20, TimeUnit.SECONDS);
          }
        });
  }

  @Test
  void aRankThatHasClosedIsNamed() {
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() != 1) {
            Buffer data = comm.allocate(DataType.FLOAT32, 8);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            NcclRemoteException thrown =
                assertThrows(NcclRemoteException.class, stream::synchronize);
            assertTrue(
                thrown.getMessage().contains("rank 1 closed its communicator"), thrown::toString);
          }
        });
  }

  @Test
  void messagesThatDifferAreToldOnBothSides() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(comm.rank() == 0 ? DataType.FLOAT32 : DataType.INT32, 6);
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
  void aMessageToARankThatIsInACollectiveIsADifferenceToo() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 6);
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
  void aMessageThatNobodyReceivesTimesOut() {
    CyclicBarrier over = new CyclicBarrier(2);
    Ranks.run(
        2,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          if (comm.rank() == 0) {
            comm.send(comm.allocate(DataType.FLOAT32, 6), 1, stream);
            NcclTimeoutException thrown =
                assertThrows(NcclTimeoutException.class, stream::synchronize);
            assertTrue(thrown.getMessage().contains("rank 1"), thrown::toString);
          }
          over.await(20, TimeUnit.SECONDS);
        });
  }

  @Test
  void failedMessageBesideACollective_isReportedAsTheMessage() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 6);
          Buffer message = comm.allocate(DataType.FLOAT32, 6);
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
  void aMessageToItselfNeedsItsOtherHalfInTheSameGroup() {
    Ranks.run(
        1,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 6);
          assertThrows(
              NcclInvalidUsageException.class, () -> Group.run(() -> comm.send(data, 0, stream)));
          assertThrows(
              NcclInvalidUsageException.class, () -> Group.run(() -> comm.recv(data, 0, stream)));
          stream.synchronize();
        });
  }

  @Test
  void memoryThatIsFreedWhileACollectiveNeedsItFailsTheCollective() {
    CountDownLatch closed = new CountDownLatch(1);
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Arena arena = Arena.ofShared();
          Buffer data =
              Buffer.ofHostSegment(
                  arena.allocate(4000, 4), DataType.FLOAT32, 1000, comm.device(), () -> {});
          if (comm.rank() == 0) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            arena.close();
            closed.countDown();
          } else {
            closed.await();
            comm.allReduce(data, data, ReduceOp.SUM, stream);
          }
          NcclException thrown = assertThrows(NcclException.class, stream::synchronize);
          assertTrue(
              thrown.getMessage().contains("a buffer was closed while the operation used it"),
              thrown::toString);
        });
  }

  @Test
  void anOperationOnACommunicatorThatFailedFailsAtOnce() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 4 + comm.rank());
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          NcclException first = assertThrows(NcclException.class, stream::synchronize);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          NcclException second = assertThrows(NcclException.class, stream::synchronize);
          assertTrue(second.getMessage().contains("failed before"), second::toString);
          assertEquals(first.getMessage(), comm.asyncError().orElseThrow().getMessage());
        });
  }

  @Test
  void aFailureIsToldByEveryWaitUntilTheCommunicatorHasEnded() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 4 + comm.rank());
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
          assertTrue(comm.aborted());
          assertThrows(CommunicatorAbortedException.class, stream::synchronize);
          stream.synchronize();
        });
  }

  @Test
  void manyCommunicatorsLeaveNoThreadBehindOnTheirStream() {
    Backend backend = ReferenceBackend.open(1);
    int threads = 0;
    try (Stream stream = backend.newStream(0);
        Buffer data = backend.allocate(0, DataType.INT32, 1)) {
      for (int i = 0; i < 500; i++) {
        Communicator comm = backend.communicator(backend.newUniqueId(), 1, 0, LATE);
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
      // Threads of earlier tests may end meanwhile.
      assertTrue(Thread.activeCount() <= threads + 1, () -> "" + Thread.activeCount());
      assertEquals(0, Site.ofThisProcess().openDoorways());
    }
  }

  @Test
  void ranksThatDoNotComeToTheirCommunicatorAreNamed() {
    Backend backend = ReferenceBackend.open(4);
    UniqueId id = backend.newUniqueId();
    NcclTimeoutException thrown =
        assertThrows(
            NcclTimeoutException.class,
            () ->
                Group.run(
                    () -> {
                      backend.communicator(id, 4, 0, SOON);
                      backend.communicator(id, 4, 2, SOON);
                    }));
    assertTrue(thrown.getMessage().contains("ranks 1, 3 of 4 did not come"), thrown::toString);
    assertEquals(0, Site.ofThisProcess().openDoorways());
  }

  @Test
  void anIdWhoseProcessHasEndedIsRefusedAtOnce() throws Exception {
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp",
                String.join(
                    ":",
                    RankProcesses.location(Gathering.class),
                    RankProcesses.location(IdMaker.class),
                    RankProcesses.location(LogManager.class)),
                IdMaker.class.getName())
            .start();
    String hex;
    try (BufferedReader lines = process.inputReader()) {
      hex = lines.readLine();
    }
    assertEquals(0, process.waitFor());
    UniqueId id = UniqueId.fromHex(hex);
    Backend backend = ReferenceBackend.open(2);
    NcclRemoteException refused =
        assertThrows(NcclRemoteException.class, () -> backend.communicator(id, 2, 1, LATE));
    String text = refused.getMessage();
    assertTrue(text.contains("process " + process.pid() + " on "), text);
    assertTrue(text.contains("which made the id, cannot be reached"), text);
    assertEquals(0, Site.ofThisProcess().openDoorways());
  }

  @Test
  void whoDiffersFromTheRanksBeforeItIsRefused() {
    Backend backend = ReferenceBackend.open(4);
    UniqueId id = backend.newUniqueId();
    Doorway.Visitor first = new Doorway.Visitor(3, 0, OPTIONS.toString(), null);
    Gathering.of(Site.ofThisProcess(), id, Gathering.CONNECT, first).admit(first, null);
    assertRefused(backend, id, 3, 0, "rank 0 has come already");
    assertRefused(backend, id, 4, 1, "rank 1 wants 4 ranks, the ranks before it 3");
    Backend other = ReferenceBackend.open(4, OPTIONS.withChannels(1));
    assertRefused(other, id, 3, 1, "other options");
    NcclTimeoutException late =
        assertThrows(NcclTimeoutException.class, () -> backend.communicator(id, 3, 1, SOON));
    String text = late.getMessage();
    assertTrue(text.contains("rank 2 of 3 did not come; refused: rank 1 has other options"), text);
    assertEquals(0, Site.ofThisProcess().openDoorways());
  }

  @Test
  void aRefusedRankOfAnotherProcessDoesNotFailTheOthers() throws Exception {
    List<Site> sites = List.of(new Site(), new Site());
    Backend backend = SeparateSites.open(2, OPTIONS, sites);
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> first = start(() -> backend.communicator(id, 2, 0, LATE));
    while (sites.get(0).doorway(id) == null) {
      Thread.sleep(1);
    }
    Backend elsewhere = ReferenceBackend.open(2);
    assertRefused(elsewhere, id, 3, 2, "rank 2 wants 3 ranks, the ranks before it 2");
    try (Communicator second = backend.communicator(id, 2, 1, LATE);
        Communicator there = first.get(20, TimeUnit.SECONDS)) {
      assertEquals(1, second.rank());
      assertEquals(0, there.rank());
    }
  }

  @Test
  void rankThatComesTwiceElsewhere_isRefusedOnce() throws Exception {
    List<Site> sites = List.of(new Site(), new Site());
    Backend backend = SeparateSites.open(3, OPTIONS, sites);
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> second = start(() -> backend.communicator(id, 3, 1, LATE));
    // Both ranks 1 are of the process that has not made the id.
    while (sites.get(0).doorway(id) == null) {
      Thread.sleep(1);
    }
    assertRefused(backend, id, 3, 1, "rank 1 has come already");
    FutureTask<Communicator> third = start(() -> backend.communicator(id, 3, 2, LATE));
    try (Communicator first = backend.communicator(id, 3, 0, LATE);
        Communicator one = second.get(20, TimeUnit.SECONDS);
        Communicator two = third.get(20, TimeUnit.SECONDS)) {
      assertEquals(0, first.rank());
      assertEquals(1, one.rank());
      assertEquals(2, two.rank());
    }
  }

  @Test
  void rankThatArrivesAfterTheFailure_isNotConnected() {
    List<Site> sites = List.of(new Site(), new Site());
    UniqueId id = SeparateSites.open(2, OPTIONS, sites).newUniqueId();
    Doorway.Visitor visitor = new Doorway.Visitor(2, 1, OPTIONS.toString(), null);
    Doorway doorway = Gathering.of(sites.get(1), id, Gathering.CONNECT, visitor);
    ((Gathering) doorway).fail("failed by a test");
    Deadline deadline = Deadline.after(LATE.timeout());
    NcclRemoteException thrown =
        assertThrows(NcclRemoteException.class, () -> doorway.admit(visitor, deadline));
    assertEquals("failed by a test", thrown.text());
    assertNull(sites.get(1).location().address(), "it listens for a connection to the maker");
  }

  @Test
  void rankThatArrivesAfterTheEnd_isRefused() throws Exception {
    List<Site> sites = List.of(new Site(), new Site());
    Backend backend = SeparateSites.open(2, OPTIONS, sites);
    UniqueId id = backend.newUniqueId();
    Doorway.Visitor visitor = new Doorway.Visitor(2, 1, OPTIONS.toString(), null);
    Doorway doorway = Gathering.of(sites.get(1), id, Gathering.CONNECT, visitor);
    FutureTask<Communicator> first = start(() -> backend.communicator(id, 2, 0, LATE));
    try (Communicator second = backend.communicator(id, 2, 1, LATE);
        Communicator there = first.get(20, TimeUnit.SECONDS)) {
      Deadline deadline = Deadline.after(LATE.timeout());
      NcclInvalidUsageException thrown =
          assertThrows(NcclInvalidUsageException.class, () -> doorway.admit(visitor, deadline));
      assertEquals("rank 1 has come already; every rank comes once", thrown.text());
      assertEquals(1, second.rank());
      assertEquals(0, there.rank());
    }
  }

  private static FutureTask<Communicator> start(Callable<Communicator> maker) {
    FutureTask<Communicator> task = new FutureTask<>(maker);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  private static void assertRefused(Backend backend, UniqueId id, int size, int rank, String text) {
    NcclInvalidUsageException thrown =
        assertThrows(
            NcclInvalidUsageException.class, () -> backend.communicator(id, size, rank, SOON));
    assertTrue(thrown.getMessage().contains(text), thrown::toString);
  }

  @Test
  void anIdOfAnotherBackendIsRefused() {
    byte[] bytes = new byte[UniqueId.BYTES];
    bytes[0] = 1;
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () -> ReferenceBackend.open(1).communicator(UniqueId.of(bytes), 1, 0, SOON));
    assertTrue(
        thrown.getMessage().contains("was made by NCCL, but this rank uses the reference backend"),
        thrown::toString);
  }

  @Test
  void aSplitThatARankDoesNotJoinNamesIt() {
    CyclicBarrier over = new CyclicBarrier(3);
    Ranks.run(
        3,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          if (comm.rank() != 1) {
            NcclTimeoutException thrown =
                assertThrows(NcclTimeoutException.class, () -> comm.split(0, 0));
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

  @Test
  void aStreamTakesMoreThanItsQueueWasMadeForAndKeepsTheOrder() {
    int operations = 1000;
    CountDownLatch enqueued = new CountDownLatch(1);
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          if (comm.rank() == 1) {
            enqueued.await();
          }
          Buffer data = comm.allocate(DataType.INT32, operations);
          data.fill((byte) 0, stream);
          data.slice(0, 1).copyFrom(one(comm, stream), stream);
          for (int i = 1; i < operations; i++) {
            comm.allReduce(data.slice(i - 1, 1), data.slice(i, 1), ReduceOp.MAX, stream);
          }
          enqueued.countDown();
          stream.synchronize();
          assertEquals(1, DataType.INT32.getLong(data.segment(), operations - 1));
        });
  }

  private static Buffer one(Communicator comm, Stream stream) {
    Buffer one = comm.allocate(DataType.INT32, 1);
    DataType.INT32.setLong(one.segment(), 0, 1);
    stream.synchronize();
    return one;
  }

  @Test
  void oneCommunicatorOnTwoStreamsKeepsTheOrderOfCalls() {
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          try (Stream other = comm.newStream()) {
            Buffer data = comm.allocate(DataType.INT32, 1);
            DataType.INT32.setLong(data.segment(), 0, 1);
            for (int i = 0; i < 10; i++) {
              comm.allReduce(data, data, ReduceOp.SUM, i % 2 == 0 ? stream : other);
            }
            stream.synchronize();
            other.synchronize();
            assertEquals((long) Math.pow(3, 10), DataType.INT32.getLong(data.segment(), 0));
          }
        });
  }

  @Test
  void aGroupMayUseSeveralStreamsOfOneCommunicator() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          try (Stream other = comm.newStream()) {
            Buffer data = comm.allocate(DataType.INT32, 2);
            DataType.INT32.setLong(data.segment(), 0, 10 + comm.rank());
            int peer = 1 - comm.rank();
            Group.run(
                () -> {
                  comm.recv(data.slice(1, 1), peer, other);
                  comm.send(data.slice(0, 1), peer, stream);
                });
            stream.synchronize();
            assertEquals(10 + peer, DataType.INT32.getLong(data.segment(), 1));
            other.synchronize();
          }
        });
  }

  @Test
  void anInterruptEndsAWaitAndIsKept() {
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.allocate(DataType.FLOAT32, 6);
          if (comm.rank() == 0) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            Thread.currentThread().interrupt();
            assertThrows(CancellationException.class, stream::synchronize);
            assertTrue(Thread.interrupted(), "the interrupt is kept");
            assertFalse(stream.isComplete(), "the work goes on");
            Thread.currentThread().interrupt();
            comm.send(data, 1, stream);
          } else {
            Thread.sleep(50);
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            comm.recv(data, 0, stream);
          }
          assertTrue(comm.rank() == 1 || Thread.interrupted());
          stream.synchronize();
        });
  }

  @Test
  void aStreamThatCannotEndIsGivenUpAfterTheTimeoutOfItsCommunicators() {
    Ranks.run(
        1,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          Stream stuck = comm.newStream();
          CountDownLatch ended = new CountDownLatch(1);
          Mark never = new Mark();
          Buffer data = comm.allocate(DataType.FLOAT32, 6);
          comm.allReduce(data, data, ReduceOp.SUM, stuck);
          stuck.synchronize();
          ((ReferenceStream) Contract.get().driver(stuck)).follow(never);
          data.fill((byte) 0, stuck);
          NcclTimeoutException thrown = assertThrows(NcclTimeoutException.class, stuck::close);
          assertTrue(thrown.getMessage().contains("1.0 s: 2 pending"), thrown::toString);
          stuck.close();
          never.reach(null);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          stream.completion().thenRun(ended::countDown);
          assertTrue(ended.await(20, TimeUnit.SECONDS));
        });
  }
}
