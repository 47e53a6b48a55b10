package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclCommunicator;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.random.RandomGenerator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that no call uses a communicator handle after another thread has freed it. The stand-in
 * detects such a use, where NCCL would crash.
 */
@OnStandIn
class AbortTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final CommunicatorConfig HOUR_TIMEOUT = CONFIG.withTimeout(Duration.ofHours(1));
  private static final Duration SOON = Duration.ofSeconds(30);
  private static final CommunicatorConfig SHORT_TIMEOUT =
      CONFIG.withTimeout(Duration.ofMillis(300));

  private static final String ABORT_LATE = ": ncclCommAbort is late; its thread keeps running";

  private Backend backend;

  @BeforeEach
  void open() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    backend = Backend.nccl();
  }

  @AfterEach
  void close() {
    StandIn.reset();
    backend.close();
  }

  @Test
  void abortDuringCallsPreventsUseAfterFree() throws InterruptedException {
    long seed = Long.getLong("test.seed", System.nanoTime());
    System.out.println("AbortTest -Dtest.seed=" + seed);
    RandomGenerator random = new java.util.Random(seed);
    long before = StandIn.live("communicator");
    for (int round = 0; round < 100; round++) {
      abortDuringCalls(round % 2 == 0, random.nextInt(300_000));
    }
    assertEquals(before, StandIn.live("communicator"));
  }

  private void abortDuringCalls(boolean blocking, int nanos) throws InterruptedException {
    Communicator comm =
        backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG.withBlocking(blocking));
    AtomicReference<RuntimeException> end = new AtomicReference<>();
    CountDownLatch calling = new CountDownLatch(1);
    try (Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      Thread caller =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      while (true) {
                        comm.allReduce(value, value, ReduceOp.SUM, stream);
                        calling.countDown();
                      }
                    } catch (RuntimeException e) {
                      end.set(e);
                      calling.countDown();
                    }
                  });
      calling.await();
      LockSupport.parkNanos(nanos);
      comm.abort();
      caller.join(Duration.ofSeconds(20));
      assertFalse(caller.isAlive());
    }
    RuntimeException last = end.get();
    boolean aborted =
        last instanceof CommunicatorAbortedException
            || (last instanceof IllegalStateException && last.getMessage().startsWith("aborted: "));
    assertTrue(aborted, () -> "blocking " + blocking + ": " + last);
  }

  @Test
  void secondThreadIsRefused() throws InterruptedException {
    Communicator comm =
        backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG.withBlocking(false));
    try (Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      StandIn.hold(-1);
      Thread first =
          Thread.ofPlatform().start(() -> comm.allReduce(value, value, ReduceOp.SUM, stream));
      awaitInside(first);
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
      assertTrue(refused.getMessage().contains("in use by another thread"), refused::toString);
      StandIn.hold(0);
      first.join();
      // The call has returned, but the stream may not have completed the collective.
      stream.synchronize();
    }
    comm.close();
  }

  @Test
  void callDuringCloseIsRefusedAndCloseCompletes() {
    for (int round = 0; round < 100; round++) {
      Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
      try (Stream stream = comm.newStream();
          Buffer value = comm.newBuffer(DataType.INT32, 1)) {
        comm.allReduce(value, value, ReduceOp.SUM, stream);
        stream.synchronize();
        CompletableFuture<Void> closing = Pair.startClosing(comm);
        do {
          IllegalStateException refused =
              assertThrows(
                  IllegalStateException.class,
                  () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
          assertEquals("closed: " + comm, refused.getMessage());
        } while (!closing.isDone());
        Pair.await(closing);
        assertFalse(comm.isAborted());
      }
    }
  }

  /** Waits until the thread is inside NCCL and sleeps between two polls of the state. */
  private static void awaitInside(Thread thread) {
    long start = System.nanoTime();
    while (thread.getState() != Thread.State.TIMED_WAITING) {
      assertTrue(System.nanoTime() - start < 10_000_000_000L, () -> thread.getState().toString());
      LockSupport.parkNanos(100_000);
    }
  }

  @Test
  void abortAllDoesNotWaitForKernelsOfTheOthers() {
    StandIn.pitfall(15);
    List<Communicator> all = new ArrayList<>();
    List<Stream> streams = new ArrayList<>();
    List<Buffer> values = new ArrayList<>();
    for (int pair = 0; pair < 2; pair++) {
      // Two communicators of two devices; no rank 1 joins.
      List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, HOUR_TIMEOUT);
      all.addAll(ranks);
      streams.add(ranks.getFirst().newStream());
      values.add(ranks.getFirst().newBuffer(DataType.INT32, 1));
    }
    for (int pair = 0; pair < 2; pair++) {
      Buffer value = values.get(pair);
      all.get(2 * pair).allReduce(value, value, ReduceOp.SUM, streams.get(pair));
    }
    assertTimeoutPreemptively(SOON, () -> Communicator.abortAll(all));
    for (int pair = 0; pair < 2; pair++) {
      assertThrows(CommunicatorAbortedException.class, streams.get(pair)::synchronize);
      streams.get(pair).close();
      values.get(pair).close();
    }
  }

  @Test
  void abortThatWaitsInNcclGoesOnInTheBackground() {
    StandIn.pitfall(15);
    List<Communicator> stuck = backend.newCommunicators(new int[] {0, 1}, HOUR_TIMEOUT);
    List<Communicator> aborted = backend.newCommunicators(new int[] {0, 1}, SHORT_TIMEOUT);
    try (LogLines log = new LogLines(NcclCommunicator.class);
        Stream stream = stuck.getFirst().newStream();
        Buffer value = stuck.getFirst().newBuffer(DataType.INT32, 1)) {
      stuck.getFirst().allReduce(value, value, ReduceOp.SUM, stream);
      assertTimeoutPreemptively(SOON, () -> Communicator.abortAll(aborted));
      assertEquals(2, log.lines().size(), log.lines()::toString);
      log.lines().forEach(line -> assertTrue(line.endsWith(ABORT_LATE), line));
      Communicator.abortAll(stuck);
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
    }
  }

  @Test
  void failedRankOfRunRanksDoesNotWaitForKernels() {
    StandIn.pitfall(15);
    CountDownLatch enqueued = new CountDownLatch(2);
    Throwable failure =
        assertTimeoutPreemptively(
            SOON,
            () ->
                assertThrows(
                    IllegalCallerException.class,
                    () ->
                        backend.runRanks(
                            3,
                            rank -> {
                              if (rank.rank() == 0) {
                                enqueued.await();
                                throw new IllegalCallerException("rank 0 fails");
                              }
                              Stream stream = rank.newStream();
                              Buffer value = rank.newBuffer(DataType.INT32, 1);
                              rank.allReduce(value, value, ReduceOp.SUM, stream);
                              enqueued.countDown();
                              try {
                                stream.synchronize();
                              } finally {
                                stream.close();
                                value.close();
                              }
                            },
                            HOUR_TIMEOUT)));
    assertEquals("rank 0 fails", failure.getMessage());
  }

  @Test
  void abortedWorkIsReportedAfterClose() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    Communicator waiting = ranks.getFirst();
    try (Stream stream = waiting.newStream();
        Buffer value = waiting.newBuffer(DataType.INT32, 1)) {
      waiting.allReduce(value, value, ReduceOp.SUM, stream);
      waiting.abort();
      waiting.close();
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
    }
    ranks.getLast().abort();
  }

  @Test
  void closedStreamWithStuckWorkMakesCloseAbort() {
    long before = StandIn.live("communicator");
    List<Communicator> ranks =
        Creation.retry(
            NcclException.class, () -> backend.newCommunicators(new int[] {0, 1}, SHORT_TIMEOUT));
    Communicator waiting = ranks.getFirst();
    long streams = StandIn.live("stream");
    Stream stream = waiting.newStream();
    Buffer value = waiting.newBuffer(DataType.INT32, 1);
    waiting.allReduce(value, value, ReduceOp.SUM, stream);
    assertThrows(IllegalStateException.class, stream::close);
    assertThrows(NcclTimeoutException.class, waiting::close);
    assertTrue(waiting.isAborted());
    ranks.getLast().abort();
    value.close();
    awaitLive(before, "communicator");
    awaitLive(streams, "stream");
  }

  @Test
  void splitOfCommunicatorClosedInGroupIsRefused() {
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    IllegalStateException refused =
        assertThrows(
            IllegalStateException.class,
            () ->
                Group.run(
                    () -> {
                      comm.split(0, 0);
                      comm.close();
                    }));
    assertTrue(refused.getMessage().startsWith("closed: "), refused::toString);
    assertEquals(0, StandIn.calls("ncclCommSplit"));
  }

  @Test
  void memoryOfTimedOutLaunchIsKeptUntilAbort() {
    long before = StandIn.live("communicator");
    Communicator comm =
        Creation.retry(
            NcclException.class,
            () ->
                backend.newCommunicator(
                    backend.newUniqueId(), 1, 0, SHORT_TIMEOUT.withBlocking(false)));
    Stream stream = comm.newStream();
    Buffer value = comm.newBuffer(DataType.INT32, 1);
    long memory = StandIn.live("memory");
    StandIn.hold(-1);
    assertThrows(
        NcclTimeoutException.class, () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
    assertThrows(IllegalStateException.class, value::close);
    assertEquals(memory, StandIn.live("memory"), "NCCL may still enqueue it");
    comm.abort();
    stream.close();
    assertEquals(memory - 1, StandIn.live("memory"));
    // Other tests count what is left.
    awaitLive(before, "communicator");
  }

  /** Waits until an abort, for which a busy machine exceeds the timeout, has freed its objects. */
  private static void awaitLive(long expected, String kind) {
    long start = System.nanoTime();
    while (StandIn.live(kind) != expected && System.nanoTime() - start < 20_000_000_000L) {
      LockSupport.parkNanos(1_000_000);
    }
    assertEquals(expected, StandIn.live(kind), kind);
  }

  @Test
  void memoryOfStreamWhoseCloseTimedOutIsKept() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    Communicator comm =
        Creation.retry(
            NcclException.class,
            () -> backend.newCommunicator(backend.newUniqueId(), 1, 0, SHORT_TIMEOUT));
    try (Stream waited = ranks.getFirst().newStream();
        Event reduced = ranks.getFirst().newEvent();
        Buffer value = ranks.getFirst().newBuffer(DataType.INT32, 1);
        Stream other = comm.newStream()) {
      AtomicInteger freed = new AtomicInteger();
      Buffer filled = view(value, freed);
      Stream closing = comm.newStream();
      comm.allReduce(value, value, ReduceOp.SUM, closing); // Shortens the timeout of its close.
      closing.synchronize();
      ranks.getFirst().allReduce(value, value, ReduceOp.SUM, waited);
      waited.record(reduced);
      closing.waitFor(reduced);
      filled.fill((byte) 1, closing);
      assertThrows(NcclTimeoutException.class, closing::close);
      filled.fill((byte) 2, other);
      other.synchronize();
      ranks.forEach(Communicator::abort);
      assertThrows(CommunicatorAbortedException.class, waited::synchronize);
      assertMemoryKept(filled, freed);
    }
    comm.abort();
  }

  @Test
  void memoryOfWorkThatOutlivesAbortIsKept() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    try (Stream waited = ranks.getFirst().newStream();
        Event reduced = ranks.getFirst().newEvent();
        Buffer value = ranks.getFirst().newBuffer(DataType.INT32, 1)) {
      AtomicInteger freed = new AtomicInteger();
      Buffer early = view(value, freed);
      Buffer late = view(value, freed);
      Stream closing = comm.newStream();
      ranks.getFirst().allReduce(value, value, ReduceOp.SUM, waited);
      waited.record(reduced);
      closing.waitFor(reduced);
      comm.allReduce(early, late, ReduceOp.SUM, closing);
      assertThrows(IllegalStateException.class, early::close);
      comm.abort();
      closing.close(); // Stops waiting for the other communicator after 5 s.
      assertMemoryKept(late, freed);
      ranks.forEach(Communicator::abort);
      assertThrows(CommunicatorAbortedException.class, waited::synchronize);
    }
  }

  @Test
  void memoryOfWorkThatEndsAfterFailureIsFreed() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    try (Stream waited = ranks.getFirst().newStream();
        Event reduced = ranks.getFirst().newEvent();
        Buffer value = ranks.getFirst().newBuffer(DataType.INT32, 1)) {
      AtomicInteger freed = new AtomicInteger();
      Buffer filled = view(value, freed);
      Stream closing = comm.newStream();
      comm.allReduce(value, value, ReduceOp.SUM, closing);
      closing.synchronize();
      ranks.getFirst().allReduce(value, value, ReduceOp.SUM, waited);
      waited.record(reduced);
      closing.waitFor(reduced);
      filled.fill((byte) 1, closing);
      assertThrows(
          NcclRemoteException.class,
          () -> NcclCommunicator.of(comm).callNative("failRank", AbortTest::failRank));
      CompletableFuture<Void> end =
          CompletableFuture.runAsync(
              () -> ranks.forEach(Communicator::abort),
              CompletableFuture.delayedExecutor(500, TimeUnit.MILLISECONDS));
      closing.close();
      end.join();
      filled.close();
      assertEquals(1, freed.get());
    }
    comm.abort();
  }

  private static int failRank(MemorySegment communicator) {
    StandIn.failRank(communicator, 0, NcclResult.REMOTE_ERROR.code());
    return nccl_h.ncclSuccess();
  }

  private static Buffer view(Buffer memory, AtomicInteger freed) {
    return Buffer.ofDeviceAddress(
        memory.address(), memory.type(), memory.count(), 0, freed::incrementAndGet);
  }

  private static void assertMemoryKept(Buffer buffer, AtomicInteger freed) {
    IllegalStateException kept = assertThrows(IllegalStateException.class, buffer::close);
    assertTrue(kept.getMessage().contains("the memory stays allocated"), kept::toString);
    assertEquals(0, freed.get());
  }

  @Test
  void callAfterTimedOutSplitNamesTheSplit() {
    long before = StandIn.live("communicator");
    List<Communicator> ranks =
        Creation.retry(
            NcclException.class, () -> backend.newCommunicators(new int[] {0, 1}, SHORT_TIMEOUT));
    Communicator waiting = ranks.getFirst();
    assertThrows(NcclTimeoutException.class, () -> waiting.split(0, 0));
    try (Stream stream = waiting.newStream();
        Buffer value = waiting.newBuffer(DataType.INT32, 1)) {
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () -> waiting.allReduce(value, value, ReduceOp.SUM, stream));
      assertTrue(refused.getMessage().contains("timed out, in ncclCommSplit"), refused::toString);
    }
    // Ends the split that waits for it: other tests count what is left.
    ranks.getLast().split(0, 0).abort();
    ranks.forEach(Communicator::abort);
    awaitLive(before, "communicator");
  }

  @Test
  void closeOfFailedCommunicatorAborts() {
    long before = StandIn.live("communicator");
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    StandIn.fail("ncclCommFinalize", 6, 1);
    assertThrows(NcclRemoteException.class, comm::close);
    assertTrue(comm.isAborted());
    assertEquals(before, StandIn.live("communicator"));
    assertEquals(1, StandIn.calls("ncclCommAbort"));
  }

  @Test
  void interruptedCloseCompletes() {
    long before = StandIn.live("communicator");
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    Thread.currentThread().interrupt();
    comm.close();
    assertTrue(Thread.interrupted());
    assertEquals(before, StandIn.live("communicator"));
  }

  @Test
  void twoSplitsOfOneCommunicatorInGroupAreRefused() {
    try (Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG)) {
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        comm.split(0, 0);
                        comm.split(0, 0);
                      }));
      assertTrue(refused.getMessage().contains("one split"), refused::toString);
      assertEquals(0, StandIn.calls("ncclCommSplit"));
    }
  }

  @Test
  void groupWithClosedBufferIsNotLaunched() {
    try (Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
        Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      Buffer closed = comm.newBuffer(DataType.INT32, 1);
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        comm.allReduce(value, value, ReduceOp.SUM, stream);
                        comm.allReduce(closed, closed, ReduceOp.SUM, stream);
                        closed.close();
                      }));
      assertTrue(refused.getMessage().startsWith("send is closed"), refused::toString);
      assertEquals(0, StandIn.calls("ncclAllReduce"));
    }
  }
}
