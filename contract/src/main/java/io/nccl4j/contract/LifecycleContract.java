package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Creating, closing and aborting communicators, and the timeouts for a silent peer. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class LifecycleContract {
  /**
   * The seconds that a call that returns at once, or after the short timeout, may take on a busy
   * machine.
   */
  private static final long LIMIT_SECONDS = 15;

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 8, 17, 24);
  }

  @Test
  void closeWhileConnectingAborts() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CommunicatorConfig config =
        underTest().config().withTimeout(Duration.ofMinutes(1)).withBlocking(false);
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      CompletableFuture<Communicator> created = new CompletableFuture<>();
      CompletableFuture<Throwable> outcome =
          outcomeOf(
              () -> Group.run(() -> created.complete(backend.newCommunicator(id, 2, 0, config))));
      Communicator comm = created.get(LIMIT_SECONDS, TimeUnit.SECONDS);
      // The result is the same whether it has already begun to connect or not.
      comm.close();
      assertInstanceOf(
          CommunicatorAbortedException.class, outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS));
      assertTrue(comm.isAborted());
      assertFalse(comm.isOpen());
    }
  }

  /**
   * After an abort with pending work, everything that belongs to the rank closes without a word.
   */
  @Test
  void everythingClosesQuietlyAfterAnAbort() {
    int n = Math.min(2, underTest().maxRanks());
    Ranks ranks = Ranks.of(underTest(), n, underTest().config().withBlocking(false));
    // The first collective may wait for the other ranks in its call.
    ranks.each(
        rank -> {
          Buffer warm = rank.ints(1);
          rank.comm().allReduce(warm, warm, ReduceOp.SUM, rank.stream());
          rank.stream().synchronize();
        });
    Communicator comm = ranks.rank(0).comm();
    Stream stream = comm.newStream();
    Event event = comm.newEvent();
    Buffer value = comm.newBuffer(DataType.INT32, 1);
    ReduceOp.PreMulSum operator = comm.newPreMulSum(DataType.INT32, 2);
    value.fill((byte) 0, stream);
    comm.allReduce(value, value, ReduceOp.SUM, stream); // the other rank does not call
    stream.record(event);
    ranks.abort();
    for (AutoCloseable owner : List.of(operator, value, event, stream, comm)) {
      assertDoesNotThrow(owner::close, owner::toString);
    }
    ranks.close();
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void communicatorReportsRankSizeAndDevice(int n) {
    CommunicatorConfig config = underTest().config().withName("named");
    try (Ranks ranks = Ranks.of(underTest(), n, config)) {
      int devices = ranks.backend().devices().size();
      for (int r = 0; r < n; r++) {
        Communicator comm = ranks.rank(r).comm();
        assertEquals(r, comm.rank());
        assertEquals(n, comm.size());
        assertEquals(r % devices, comm.device());
        assertEquals(config, comm.config());
        assertEquals(ranks.backend(), comm.backend());
        assertTrue(comm.isOpen());
        assertFalse(comm.isAborted());
        assertEquals(Optional.empty(), comm.asyncError());
        assertTrue(comm.toString().contains("named: rank " + r + " of " + n), comm::toString);
      }
    }
  }

  @ParameterizedTest(name = "blocking {0}")
  @ValueSource(booleans = {true, false})
  void blockingAndNonBlockingCommunicatorsGiveSameResults(boolean blocking) {
    int n = Math.min(3, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n, underTest().config().withBlocking(blocking))) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            for (int i = 0; i < 3; i++) {
              rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            }
            assertEquals(n * n * n, rank.downloadInts(value)[0]);
            try (Communicator child = rank.comm().split(0, 0)) {
              child.allReduce(value, value, ReduceOp.MAX, rank.stream());
              assertEquals(n * n * n, rank.downloadInts(value)[0]);
            }
            assertEquals(Optional.empty(), rank.comm().asyncError());
          });
    }
  }

  @Test
  void twoCommunicatorsWorkConcurrently() {
    int n = Math.min(3, underTest().maxRanks());
    try (Backend backend = underTest().open(n)) {
      UniqueId first = backend.newUniqueId();
      UniqueId second = backend.newUniqueId();
      RankThreads.run(
          n,
          r -> {
            Rank a = new Rank(backend.newCommunicator(first, n, r, underTest().config()));
            Rank b = new Rank(backend.newCommunicator(second, n, n - 1 - r, sameDevice(a)));
            Buffer valueA = a.ints(1);
            Buffer valueB = b.ints(10);
            a.comm().allReduce(valueA, valueA, ReduceOp.SUM, a.stream());
            b.comm().allReduce(valueB, valueB, ReduceOp.SUM, b.stream());
            assertEquals(n, a.downloadInts(valueA)[0]);
            assertEquals(10 * n, b.downloadInts(valueB)[0]);
            a.close();
            b.close();
          });
    }
  }

  private CommunicatorConfig sameDevice(Rank rank) {
    return underTest().config().withDevice(rank.comm().device());
  }

  @Test
  void ranksMayJoinAtDifferentTimes() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      RankThreads.run(
          2,
          rank -> {
            Thread.sleep(rank * 300L);
            try (Communicator comm = backend.newCommunicator(id, 2, rank, underTest().config())) {
              assertEquals(2, comm.size());
            }
          });
    }
  }

  @Test
  void closedCommunicatorIsRefusedByName() {
    Ranks ranks = Ranks.of(underTest(), 1, underTest().config().withName("mine"));
    Rank rank = ranks.rank(0);
    Buffer value = rank.ints(1);
    ReduceOp.PreMulSum op = rank.comm().newPreMulSum(DataType.INT32, 1);
    rank.stream().synchronize();
    rank.comm().close();
    rank.comm().close();
    assertFalse(rank.comm().isOpen());
    everyUse(rank, value, use -> refused("closed: Communicator[mine: rank 0 of 1", use));
    op.close();
    rank.comm().abort();
    assertFalse(rank.comm().isAborted(), "an abort after close does nothing");
    ranks.close();
  }

  @Test
  void abortedCommunicatorIsRefusedByName() {
    Ranks ranks = Ranks.unshared(underTest(), 1);
    Rank rank = ranks.rank(0);
    Buffer value = rank.ints(1);
    rank.stream().synchronize();
    rank.comm().abort();
    rank.comm().abort();
    assertTrue(rank.comm().isAborted());
    assertFalse(rank.comm().isOpen());
    everyUse(rank, value, use -> refused("aborted: Communicator[rank 0 of 1", use));
    rank.comm().close();
    ranks.close();
  }

  private static void everyUse(Rank rank, Buffer value, Consumer<Executable> check) {
    Communicator comm = rank.comm();
    check.accept(() -> comm.allReduce(value, value, ReduceOp.SUM, rank.stream()));
    check.accept(() -> comm.broadcast(value, 0, rank.stream()));
    check.accept(() -> comm.reduce(value, value, ReduceOp.SUM, 0, rank.stream()));
    check.accept(() -> comm.allGather(value, value, rank.stream()));
    check.accept(() -> comm.reduceScatter(value, value, ReduceOp.SUM, rank.stream()));
    check.accept(() -> comm.allToAll(value, value, rank.stream()));
    check.accept(() -> comm.gather(value, value, 0, rank.stream()));
    check.accept(() -> comm.scatter(value, value, 0, rank.stream()));
    check.accept(() -> comm.send(value, 0, rank.stream()));
    check.accept(() -> comm.recv(value, 0, rank.stream()));
    check.accept(() -> comm.split(0, 0));
    check.accept(comm::splitNoColor);
    check.accept(() -> comm.newPreMulSum(DataType.FLOAT32, 1));
    check.accept(comm::asyncError);
  }

  @Test
  void closeCompletesEnqueuedWork() {
    int n = Math.min(3, underTest().maxRanks());
    Ranks ranks = Ranks.unshared(underTest(), n);
    ranks.each(
        rank -> {
          Buffer value = rank.ints(1);
          for (int i = 0; i < 4; i++) {
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
          }
          rank.comm().close();
          assertEquals((int) Math.pow(n, 4), rank.downloadInts(value)[0]);
        });
    ranks.close();
  }

  @Test
  void closedBackendRefusesNewObjectsButExistingOnesWork() {
    Backend backend = underTest().open(1);
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, underTest().config());
    Rank rank = new Rank(comm);
    UniqueId id = backend.newUniqueId();
    Buffer value = rank.ints(4);
    backend.close();
    backend.close();
    refused("backend is closed", backend::newUniqueId);
    refused("backend is closed", () -> backend.newStream(0));
    refused("backend is closed", () -> backend.newEvent(0));
    refused("backend is closed", () -> backend.newBuffer(0, DataType.INT8, 1));
    refused("backend is closed", () -> backend.newPinnedBuffer(DataType.INT8, 1));
    refused(
        "backend is closed", () -> backend.newCommunicators(new int[] {0}, underTest().config()));
    refused("backend is closed", () -> backend.newCommunicator(id, 1, 0, underTest().config()));
    comm.allReduce(value, value, ReduceOp.SUM, rank.stream());
    assertEquals(4, rank.downloadInts(value)[0]);
    rank.close();
  }

  @Test
  void synchronizeTimesOutIfPeerIsSilent() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      NcclTimeoutException thrown =
          withinLimit(
              () ->
                  assertThrows(
                      NcclTimeoutException.class,
                      () -> stuck.stream().synchronize(Duration.ofMillis(200))));
      assertEquals(NcclResult.TIMEOUT, thrown.result());
      assertTrue(thrown.getMessage().contains("0.2 s"), thrown::toString);
      stuck.join();
      stuck.stream().synchronize(Duration.ofSeconds(LIMIT_SECONDS));
      assertTrue(stuck.stream().isComplete(), "the work continues after a time-out");
    }
  }

  @Test
  void abortFromAnotherThreadReleasesWaitingStream() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      CountDownLatch waiting = new CountDownLatch(1);
      CompletableFuture<Throwable> outcome =
          outcomeOf(
              () -> {
                waiting.countDown();
                stuck.stream().synchronize();
              });
      waiting.await();
      Thread.sleep(100);
      assertFalse(outcome.isDone());
      stuck.comm().abort();
      Throwable failure = outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS);
      assertInstanceOf(CommunicatorAbortedException.class, failure);
      assertTrue(stuck.comm().isAborted());
    }
  }

  @Test
  void streamIsUsableAfterAbort() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Buffer value = stuck.comm().newBuffer(DataType.UINT8, 10)) {
      stuck.comm().abort();
      assertThrows(
          CommunicatorAbortedException.class,
          () -> stuck.stream().synchronize(Duration.ofSeconds(LIMIT_SECONDS)));
      value.fill((byte) 6, stuck.stream());
      byte[] got = new byte[10];
      value.copyTo(MemorySegment.ofArray(got), stuck.stream());
      assertEquals(6, got[9]);
    }
  }

  @Test
  void abortAllEndsTheWaitsOfEveryRank() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      List<Communicator> ranks = stuck.ranks().communicators();
      CompletableFuture<Throwable> outcome = outcomeOf(stuck.stream()::synchronize);
      Communicator.abortAll(ranks);
      Throwable failure = outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS);
      assertInstanceOf(CommunicatorAbortedException.class, failure);
      ranks.forEach(rank -> assertTrue(rank.isAborted(), rank::toString));
      Communicator.abortAll(ranks);
      Communicator.abortAll(List.of());
    }
  }

  @Test
  void abortCompletesPendingCompletionStage() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      CompletableFuture<Void> stage = stuck.stream().completion().toCompletableFuture();
      assertFalse(stage.isDone());
      stuck.comm().abort();
      ExecutionException failure =
          assertThrows(ExecutionException.class, () -> stage.get(LIMIT_SECONDS, TimeUnit.SECONDS));
      assertInstanceOf(CommunicatorAbortedException.class, failure.getCause());
    }
  }

  @Test
  void everyWaiterGetsItsOwnExceptionNamingTheCommunicator() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest(), "what was aborted is gone")) {
      List<CompletableFuture<Void>> stages = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        stages.add(stuck.stream().completion().toCompletableFuture());
      }
      stuck.comm().abort();
      List<Throwable> failures = new ArrayList<>();
      for (CompletableFuture<Void> stage : stages) {
        failures.add(
            assertThrows(ExecutionException.class, () -> stage.get(LIMIT_SECONDS, TimeUnit.SECONDS))
                .getCause());
      }
      failures.add(assertThrows(CommunicatorAbortedException.class, stuck.stream()::synchronize));
      for (Throwable one : failures) {
        assertEquals(
            stuck.comm().toString(),
            assertInstanceOf(CommunicatorAbortedException.class, one).communicator());
        assertTrue(one.getMessage().contains(stuck.comm() + " was aborted"), one::toString);
        // Callers suppress one failure in another; an exception must not suppress itself.
        failures.stream().filter(another -> another != one).forEach(one::addSuppressed);
        assertEquals(failures.size() - 1, one.getSuppressed().length);
      }
    }
  }

  @Test
  void abortOfIdleStreamIsReportedOnce() throws Exception {
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(1);
      rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
      rank.stream().synchronize();
      rank.comm().abort();
      Class<CommunicatorAbortedException> aborted = CommunicatorAbortedException.class;
      assertThrows(aborted, () -> rank.stream().isComplete());
      CompletableFuture<Void> stage = rank.stream().completion().toCompletableFuture();
      ExecutionException failure =
          assertThrows(ExecutionException.class, () -> stage.get(LIMIT_SECONDS, TimeUnit.SECONDS));
      assertInstanceOf(aborted, failure.getCause());
      assertThrows(aborted, () -> rank.downloadInts(value));
      assertEquals(1, rank.downloadInts(value)[0], "the stream is still usable");
      assertTrue(rank.stream().isComplete());
    }
  }

  @Test
  void communicatorClosesAfterAnotherOnItsStreamWasAborted() {
    try (Backend backend = underTest().open(1);
        Stream stream = backend.newStream(0);
        Buffer value = backend.newBuffer(0, DataType.INT32, 1)) {
      CommunicatorConfig config = underTest().config().withDevice(0);
      Communicator first = backend.newCommunicator(backend.newUniqueId(), 1, 0, config);
      Communicator second = backend.newCommunicator(backend.newUniqueId(), 1, 0, config);
      first.allReduce(value, value, ReduceOp.SUM, stream);
      second.allReduce(value, value, ReduceOp.SUM, stream);
      first.abort();
      second.close();
      assertFalse(second.isAborted());
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
    }
  }

  @Test
  void pendingInterruptDoesNotCutCloseShort() {
    try (Backend backend = underTest().open(1);
        Stream reader = backend.newStream(0);
        Buffer value = backend.newBuffer(0, DataType.UINT8, 20_000_000);
        Buffer other = backend.newBuffer(0, DataType.UINT8, 20_000_000)) {
      CommunicatorConfig config = underTest().config().withDevice(0);
      Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, config);
      Stream stream = comm.newStream();
      Stream another = comm.newStream();
      value.fill((byte) 3, stream);
      for (int i = 0; i < 20; i++) {
        comm.allReduce(value, value, ReduceOp.MAX, stream);
        other.fill((byte) i, another);
        comm.allReduce(other, other, ReduceOp.MAX, another);
      }
      Thread.currentThread().interrupt();
      comm.close();
      for (int i = 0; i < 20; i++) {
        value.fill((byte) 3, stream);
      }
      stream.close();
      another.close();
      assertTrue(Thread.interrupted(), "the interrupt status is preserved");
      assertFalse(comm.isAborted());
      byte[] got = new byte[20_000_000];
      value.copyTo(MemorySegment.ofArray(got), reader);
      assertEquals(3, got[19_999_999]);
    }
  }

  @Test
  void interruptEndsInitAndIsPreserved() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CommunicatorConfig config = underTest().config().withBlocking(false);
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      interrupted(() -> backend.newCommunicator(id, 2, 0, config));
    }
  }

  @Test
  void interruptEndsInitOfAGroupAndIsPreserved() throws Exception {
    assumeTrue(underTest().maxRanks() > 2, "needs three ranks");
    CommunicatorConfig config = underTest().config().withBlocking(false);
    try (Backend backend = underTest().open(3)) {
      UniqueId id = backend.newUniqueId();
      interrupted(
          () ->
              Group.run(
                  () -> {
                    backend.newCommunicator(id, 3, 0, config);
                    backend.newCommunicator(id, 3, 1, config);
                  }));
    }
  }

  @Test
  void interruptEndsSplitAndIsPreserved() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    Ranks ranks = Ranks.of(underTest(), 2, underTest().config().withBlocking(false));
    Communicator comm = ranks.rank(0).comm();
    interrupted(() -> comm.split(0, 0));
    ranks.abort();
    ranks.close();
  }

  private static void interrupted(RankTask task) throws Exception {
    CompletableFuture<Thread> waiting = new CompletableFuture<>();
    CompletableFuture<Throwable> outcome =
        outcomeOf(
            () -> {
              waiting.complete(Thread.currentThread());
              assertThrows(CancellationException.class, task::run);
              assertTrue(Thread.interrupted(), "the interrupt status is preserved");
            });
    Thread thread = waiting.get(LIMIT_SECONDS, TimeUnit.SECONDS);
    Thread.sleep(100);
    thread.interrupt();
    assertNull(outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS));
  }

  @Test
  void closeTimesOutIfPeerIsSilent() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    Ranks ranks =
        Ranks.withTimeout(
            underTest(),
            2,
            underTest().shortTimeout(),
            each -> {
              Buffer warm = each.ints(1);
              each.comm().allReduce(warm, warm, ReduceOp.SUM, each.stream());
            });
    Rank rank = ranks.rank(0);
    Buffer value = rank.comm().newBuffer(DataType.INT32, 1);
    rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
    withinLimit(() -> assertThrows(NcclTimeoutException.class, rank.comm()::close));
    assertFalse(rank.comm().isOpen());
    assertTrue(rank.comm().isAborted());
    ranks.abort();
    try {
      rank.stream().synchronize(Duration.ofSeconds(LIMIT_SECONDS));
    } catch (NcclTimeoutException stillStuck) {
      // When its own deadline passes, the reference throws the same exception.
      assertFalse(stillStuck.getMessage().contains(LIMIT_SECONDS + ".0 s"), stillStuck::toString);
    } catch (NcclException ended) {
      assertNotNull(ended.getMessage());
    }
    value.close();
    ranks.close();
  }

  @ParameterizedTest(name = "blocking {0}")
  @ValueSource(booleans = {true, false})
  void initTimeoutNamesMissingRank(boolean blocking) throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CommunicatorConfig config = underTest().shortTimeoutConfig().withBlocking(blocking);
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      NcclTimeoutException thrown =
          withinLimit(
              () ->
                  assertThrows(
                      NcclTimeoutException.class, () -> backend.newCommunicator(id, 2, 0, config)));
      assertEquals(NcclResult.TIMEOUT, thrown.result());
      underTest().assertShortTimeout(thrown);
      assertTrue(thrown.getMessage().contains("rank"), thrown::toString);
    }
  }

  @Test
  void abortFromAnotherThreadReleasesBlockedInit() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CommunicatorConfig config = underTest().config().withBlocking(false);
    try (Backend backend = underTest().open(2)) {
      UniqueId id = backend.newUniqueId();
      CompletableFuture<Communicator> created = new CompletableFuture<>();
      CompletableFuture<Throwable> outcome =
          outcomeOf(
              () -> Group.run(() -> created.complete(backend.newCommunicator(id, 2, 0, config))));
      Communicator comm = created.get(LIMIT_SECONDS, TimeUnit.SECONDS);
      Thread.sleep(200);
      assertFalse(outcome.isDone());
      comm.abort();
      assertInstanceOf(NcclException.class, outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS));
      assertTrue(comm.isAborted());
      comm.close();
    }
  }

  @Test
  void splitTimesOutIfPeerNeverSplits() throws Exception {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    Ranks ranks = Ranks.withShortTimeout(underTest(), 2);
    NcclTimeoutException thrown =
        withinLimit(
            () -> assertThrows(NcclTimeoutException.class, () -> ranks.rank(0).comm().split(0, 0)));
    underTest().assertShortTimeout(thrown);
    ranks.abort();
    ranks.close();
  }

  @Test
  void newCommunicatorWorksAfterFailure() throws Exception {
    StuckCollective stuck = StuckCollective.start(underTest());
    stuck.close();
    try (Ranks ranks = Ranks.unshared(underTest(), 2)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            assertEquals(2, rank.downloadInts(value)[0]);
          });
    }
  }

  @Test
  void communicatorsCanBeOpenedAndClosedRepeatedly() {
    int n = Math.min(2, underTest().maxRanks());
    try (Backend backend = underTest().open(n)) {
      List<String> ids = new ArrayList<>();
      for (int i = 0; i < 10; i++) {
        UniqueId id = backend.newUniqueId();
        assertFalse(ids.contains(id.toHex()), "the ids are unique");
        ids.add(id.toHex());
        RankThreads.run(
            n, rank -> backend.newCommunicator(id, n, rank, underTest().config()).close());
      }
    }
  }

  private interface RankTask {
    void run() throws Exception;
  }

  /** Runs a task in another thread; the future's value is what the task threw, or null. */
  private static CompletableFuture<Throwable> outcomeOf(RankTask task) {
    CompletableFuture<Throwable> outcome = new CompletableFuture<>();
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                task.run();
                outcome.complete(null);
              } catch (Throwable failure) {
                outcome.complete(failure);
              }
            });
    return outcome;
  }

  /** Returns the result of a call that must return within {@link #LIMIT_SECONDS}. */
  private static <T> T withinLimit(Callable<T> call) throws Exception {
    CompletableFuture<T> result = new CompletableFuture<>();
    CompletableFuture<Throwable> outcome = outcomeOf(() -> result.complete(call.call()));
    Throwable failure = outcome.get(LIMIT_SECONDS, TimeUnit.SECONDS);
    if (failure != null) {
      throw RankThreads.unchecked(failure);
    }
    return result.get();
  }

  private static void refused(String start, Executable use) {
    Throwable thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(thrown.getMessage().startsWith(start), thrown::toString);
  }
}
