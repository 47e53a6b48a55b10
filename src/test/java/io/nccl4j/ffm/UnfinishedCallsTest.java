package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
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
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclConfig;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests the state after calls that were refused, timed out or were interrupted before NCCL
 * completed them, and calls whose state a second thread queries.
 */
@OnStandIn
class UnfinishedCallsTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final CommunicatorConfig NON_BLOCKING = CONFIG.withBlocking(false);
  private static final CommunicatorConfig SHORT_TIMEOUT =
      NON_BLOCKING.withTimeout(Duration.ofMillis(400));
  private static final int PAGE_INTS = 1024;

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();

  @Test
  void communicatorClosedWhileConnectingIsFreedLater() throws Exception {
    try (Backend backend = Backend.nccl()) {
      UniqueId id = backend.newUniqueId();
      CompletableFuture<Communicator> begun = new CompletableFuture<>();
      CompletableFuture<Throwable> end = new CompletableFuture<>();
      Runnable connect = () -> begun.complete(backend.newCommunicator(id, 2, 0, CONFIG));
      Thread.ofPlatform().daemon().start(() -> end.complete(thrown(() -> Group.run(connect))));
      await(() -> StandIn.calls("ncclCommInitRankConfig") == 1);
      begun.get(10, TimeUnit.SECONDS).close();
      Communicator peer = backend.newCommunicator(id, 2, 1, CONFIG);
      assertInstanceOf(CommunicatorAbortedException.class, end.get(10, TimeUnit.SECONDS));
      peer.abort();
      await(() -> communicators.live() == 0);
    }
  }

  @Test
  void interruptedResumeStillResumes() throws Exception {
    try (Pair pair = new Pair(CONFIG)) {
      together(() -> pair.nccl(0).suspend(), () -> pair.nccl(1).suspend());
      CompletableFuture<Throwable> end = new CompletableFuture<>();
      Thread first = Thread.ofPlatform().start(() -> end.complete(thrown(pair.nccl(0)::resume)));
      await(() -> StandIn.calls("ncclCommResume") == 1);
      first.interrupt();
      assertEquals(CancellationException.class, end.get(20, TimeUnit.SECONDS).getClass());
      pair.nccl(1).resume();
      await(() -> thrown(pair.nccl(0)::memoryStatistics) == null);
      assertFalse(pair.nccl(0).isSuspended());
      assertArrayEquals(new int[] {2}, sumOfOnes(pair));
    }
  }

  @Test
  void revokeRefusedDuringOtherCallHasNoEffect() throws Exception {
    StandIn.connect(false); // The broadcast call of one rank alone returns.
    try (Pair pair = new Pair(NON_BLOCKING)) {
      Communicator comm = pair.rank(0);
      Buffer value = comm.newBuffer(DataType.INT32, 1);
      StandIn.hold(-1);
      Thread user =
          Thread.ofPlatform().start(() -> comm.broadcast(value, value, 0, pair.stream(0)));
      await(() -> user.getState() == Thread.State.TIMED_WAITING);
      IllegalStateException refused =
          assertThrows(IllegalStateException.class, NcclCommunicator.of(comm)::revoke);
      assertTrue(refused.getMessage().contains("in use by another thread"), refused::toString);
      assertFalse(comm.isAborted());
      assertEquals(0, StandIn.calls("ncclCommRevoke"));
      StandIn.hold(0);
      user.join();
      NcclCommunicator.of(comm).revoke();
      NcclCommunicator.of(comm).revoke();
      assertTrue(comm.isAborted());
      assertEquals(1, StandIn.calls("ncclCommRevoke"));
      pair.abort();
      value.close();
    }
  }

  @Test
  void revokeFailedInNcclIsRepeatable() {
    try (Pair pair = new Pair(CONFIG)) {
      StandIn.fail("ncclCommRevoke", 3, 1);
      assertThrows(NcclException.class, pair.nccl(0)::revoke);
      pair.nccl(0).revoke();
      pair.nccl(1).revoke();
      assertEquals(3, StandIn.calls("ncclCommRevoke"));
    }
    assertEquals(0, StandIn.calls("ncclCommFinalize"), "revoked communicators are not finalized");
    assertEquals(0, StandIn.calls("ncclCommAbort"));
  }

  @Test
  void sourceLargerThanTheWindowIsRefused() {
    try (Pair pair = new Pair(CONFIG)) {
      List<Buffer> small = pair.registrable(DataType.INT8, 10);
      List<Buffer> large = pair.registrable(DataType.FLOAT32, 3);
      List<Window> targets = pair.register(small, WindowOption.SYMMETRIC);
      List<Window> sources = pair.register(large, WindowOption.SYMMETRIC);
      IllegalArgumentException refused =
          assertThrows(
              IllegalArgumentException.class,
              () -> pair.nccl(0).putSignal(large.get(0), 1, targets.get(0), 0, pair.stream(0)));
      assertEquals(
          "offset is 0; 3 elements of FLOAT32 at that offset are not within the window's 10 bytes",
          refused.getMessage());
      assertEquals(0, StandIn.calls("ncclPutSignal"));
      targets.forEach(Window::close);
      sources.forEach(Window::close);
      small.forEach(Buffer::close);
      large.forEach(Buffer::close);
    }
  }

  @Test
  void memoryOfTimedOutWindowIsRetainedUntilAbort() {
    try (Pair pair = new Pair(SHORT_TIMEOUT)) {
      List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
      StandIn.pitfall(4);
      StandIn.hold(-1);
      CompletionStage<Window> stage = pair.nccl(0).registerWindowAsync(buffers.get(0));
      assertThrows(NcclTimeoutException.class, () -> Pair.await(stage));
      CompletableFuture<Void> closing = Pair.startClosing(pair.rank(0));
      await(() -> thrown(buffers.get(0)::close) == null);
      assertEquals(1, StandIn.calls("ncclCommAbort"), "NCCL could write the window until then");
      assertThrows(RuntimeException.class, () -> Pair.await(closing));
      pair.abort();
      buffers.get(1).close();
    }
  }

  @Test
  void refusedDestroyIsFollowedByAbortAndReleasesMemory() {
    destroyFails(NcclResult.INVALID_ARGUMENT);
    assertEquals(1, StandIn.calls("ncclCommAbort"));
  }

  @Test
  void ambiguousDestroyIsNotFollowedByAbort() {
    destroyFails(NcclResult.UNHANDLED_CUDA_ERROR);
    assertEquals(0, StandIn.calls("ncclCommAbort"));
  }

  /** Closes a communicator whose window was registered after the registration had timed out. */
  private void destroyFails(NcclResult result) {
    Pair pair = new Pair(SHORT_TIMEOUT);
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    StandIn.hold(-1);
    for (int rank = 0; rank < 2; rank++) {
      NcclCommunicator comm = pair.nccl(rank);
      Buffer buffer = buffers.get(rank);
      Pair.assertTimesOut(
          "ncclCommWindowRegister", () -> Pair.await(comm.registerWindowAsync(buffer)));
    }
    StandIn.hold(0);
    await(() -> StandIn.live("window") == 2);
    Pair.awaitIdle(pair.rank(0));
    Pair.awaitIdle(pair.rank(1));
    StandIn.fail("ncclCommDestroy", result.code(), 1);
    NcclException failed = assertThrows(NcclException.class, pair.rank(0)::close);
    assertEquals("ncclCommDestroy", failed.function());
    assertSame(result, failed.result());
    assertEquals(List.of(), List.of(failed.getSuppressed()));
    assertTrue(pair.rank(0).isAborted());
    buffers.get(0).close();
    pair.close();
    buffers.get(1).close();
    await(() -> StandIn.live("window") == 0);
  }

  @Test
  void stateIsNotQueriedDuringCalls() {
    StandIn.pitfall(13);
    try (Pair pair = new Pair(NON_BLOCKING)) {
      try (Poller poller = new Poller(pair.rank(0))) {
        together(() -> pair.nccl(0).suspend(), () -> pair.nccl(1).suspend());
        together(() -> pair.nccl(0).resume(), () -> pair.nccl(1).resume());
        together(() -> pair.rank(0).split(0, 0).close(), () -> pair.rank(1).split(0, 0).close());
        pair.rank(0).newGrowId();
        pair.nccl(0).revoke();
        poller.check();
      }
      pair.nccl(1).revoke();
    }
  }

  @Test
  void stateIsNotQueriedDuringGroupEnd() {
    try (Pair pair = new Pair(NON_BLOCKING)) {
      List<Buffer> values = pair.registrable(DataType.INT32, 1);
      StandIn.pitfall(13);
      try (Poller first = new Poller(pair.rank(0));
          Poller second = new Poller(pair.rank(1))) {
        Group.run(
            () -> {
              for (int rank = 0; rank < 2; rank++) {
                Buffer value = values.get(rank);
                pair.rank(rank).allReduce(value, value, ReduceOp.SUM, pair.stream(rank));
              }
            });
        first.check();
        second.check();
      }
      StandIn.reset();
      pair.stream(0).synchronize();
      pair.stream(1).synchronize();
      values.forEach(Buffer::close);
    }
  }

  @Test
  void environmentOverridesBlockingAsInNccl() {
    StandIn.setEnvironment("NCCL_COMM_BLOCKING", "0");
    try (Pair pair = new Pair(CONFIG)) {
      IllegalArgumentException refused =
          assertThrows(IllegalArgumentException.class, () -> estimate(pair));
      assertTrue(refused.getMessage().contains("of non-blocking"), refused::toString);
      assertEquals(0, StandIn.calls("ncclGroupSimulateEnd"));
      StandIn.pitfall(13);
      try (Poller poller = new Poller(pair.rank(0))) {
        pair.nccl(0).memoryStatistics();
        poller.check();
      }
      StandIn.reset();
    }
    StandIn.setEnvironment("NCCL_COMM_BLOCKING", "1");
    try (Pair pair = new Pair(NON_BLOCKING)) {
      assertTrue(estimate(pair).isPresent());
    } finally {
      StandIn.setEnvironment("NCCL_COMM_BLOCKING", null);
    }
  }

  private static Optional<Duration> estimate(Pair pair) {
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    try {
      return NcclBackend.of(pair.backend())
          .estimate(
              () -> {
                for (int rank = 0; rank < 2; rank++) {
                  Buffer value = values.get(rank);
                  pair.rank(rank).allReduce(value, value, ReduceOp.SUM, pair.stream(rank));
                }
              });
    } finally {
      values.forEach(Buffer::close);
    }
  }

  @Test
  void growIdIsUsableAfterRefusedConfig() {
    try (Pair pair = new Pair(CONFIG)) {
      UniqueId id = pair.rank(0).newGrowId();
      NcclConfig forbidden = NcclConfig.of(CONFIG).withMinCtas(2);
      assertThrows(IllegalArgumentException.class, () -> pair.nccl(0).grow(3, id, forbidden));
      assertThrows(IllegalStateException.class, () -> pair.nccl(0).grow(3, NcclConfig.of(CONFIG)));
      grow(pair, id);
    }
  }

  @Test
  void growIdOfInterruptedCallIsReturnedByTheNext() {
    // A caller that a busy machine delays may find the call complete, and is not interrupted then.
    await(this::interruptedCallLeavesGrowId);
  }

  /** Returns false if the call completed before the interrupt had an effect. */
  private boolean interruptedCallLeavesGrowId() {
    StandIn.reset();
    try (Pair pair = new Pair(CONFIG)) {
      // The pitfall makes calls slow enough to be interrupted.
      StandIn.pitfall(13);
      Thread.currentThread().interrupt();
      Throwable interrupted = thrown(pair.rank(0)::newGrowId);
      assertTrue(Thread.interrupted());
      if (interrupted == null) {
        return false;
      }
      assertInstanceOf(CancellationException.class, interrupted);
      await(() -> StandIn.calls("ncclCommGetUniqueId") == 1);
      await(() -> thrown(pair.nccl(0)::memoryStatistics) == null);
      UniqueId id = pair.rank(0).newGrowId();
      assertEquals(1, StandIn.calls("ncclCommGetUniqueId"), "NCCL makes one at a time");
      grow(pair, id);
      return true;
    }
  }

  private static void grow(Pair pair, UniqueId id) {
    List<Communicator> grown = new ArrayList<>();
    Group.run(
        () -> {
          grown.add(pair.rank(0).grow(3, id, CONFIG));
          grown.add(pair.rank(1).grow(3, CONFIG));
          grown.add(pair.backend().join(id, 3, 2, CONFIG));
        });
    assertEquals(List.of(0, 1, 2), grown.stream().map(Communicator::rank).toList());
    together(grown.get(0)::close, grown.get(1)::close, grown.get(2)::close);
  }

  /** Queries the state repeatedly in its own thread. */
  private static final class Poller implements AutoCloseable {
    private final AtomicReference<Object> found = new AtomicReference<>();
    private final CompletableFuture<Void> end;
    private volatile boolean over;

    Poller(Communicator comm) {
      end =
          CompletableFuture.runAsync(
              () -> poll(comm), task -> Thread.ofPlatform().daemon().start(task));
    }

    private void poll(Communicator comm) {
      while (!over && found.get() == null) {
        try {
          comm.asyncError().ifPresent(found::set);
        } catch (RuntimeException failure) {
          found.set(failure);
        }
      }
    }

    void check() {
      assertEquals(null, found.get());
    }

    @Override
    public void close() {
      over = true;
      end.join();
    }
  }

  /** As in a recovery, whose ranks learn of a time-out while the watchdog still revokes. */
  @Test
  void shrinkAndRevokeWaitForRevokeOfAnotherThread() throws Exception {
    try (Pair pair = new Pair(NON_BLOCKING)) {
      StandIn.hold(-1);
      List<CompletableFuture<Throwable>> ends = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        NcclCommunicator nccl = pair.nccl(rank);
        start(ends, nccl::revoke);
        Communicator comm = pair.rank(rank);
        await(comm::isAborted);
        start(ends, nccl::revoke);
        start(ends, () -> comm.shrink(Set.of(1 - comm.rank()), ShrinkMode.ABORT_FIRST).close());
      }
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
      for (CompletableFuture<Throwable> end : ends) {
        assertFalse(end.isDone(), () -> "ended: " + end);
      }
      StandIn.hold(0);
      for (CompletableFuture<Throwable> end : ends) {
        assertEquals(null, end.get(20, TimeUnit.SECONDS));
      }
      assertEquals(2, StandIn.calls("ncclCommRevoke"));
    }
  }

  private static void start(List<CompletableFuture<Throwable>> ends, Runnable call) {
    CompletableFuture<Throwable> end = new CompletableFuture<>();
    ends.add(end);
    Thread.ofPlatform().daemon().start(() -> end.complete(thrown(call)));
  }

  @Test
  void lateChildIsFreedWithItsRevokedParent() {
    try (Pair pair = new Pair(SHORT_TIMEOUT)) {
      StandIn.pitfall(4);
      StandIn.hold(-1);
      Communicator comm = pair.rank(0);
      Pair.assertTimesOut("ncclCommSplit", () -> comm.split(0, 0));
      Pair.assertTimesOut("ncclCommSplit", () -> pair.rank(1).split(0, 0));
      StandIn.hold(0);
      await(() -> communicators.live() == 4);
      Pair.awaitIdle(comm);
      NcclCommunicator.of(comm).revoke();
      comm.close();
    }
  }

  private static int[] sumOfOnes(Pair pair) {
    List<Buffer> values = new ArrayList<>();
    Group.run(
        () -> {
          for (int rank = 0; rank < 2; rank++) {
            Buffer value = pair.rank(rank).newBuffer(DataType.INT32, 1);
            values.add(value);
            value.copyFromAsync(MemorySegment.ofArray(new int[] {1}), pair.stream(rank));
            pair.rank(rank).allReduce(value, value, ReduceOp.SUM, pair.stream(rank));
          }
        });
    int[] sum = pair.download(0, values.getFirst());
    pair.stream(1).synchronize();
    values.forEach(Buffer::close);
    return sum;
  }

  private static void together(Runnable... actions) {
    List<CompletableFuture<Void>> ends = new ArrayList<>();
    for (Runnable action : actions) {
      ends.add(
          CompletableFuture.runAsync(action, task -> Thread.ofPlatform().daemon().start(task)));
    }
    ends.forEach(end -> end.orTimeout(20, TimeUnit.SECONDS).join());
  }

  private static Throwable thrown(Runnable action) {
    try {
      action.run();
      return null;
    } catch (RuntimeException e) {
      return e;
    }
  }

  private static void await(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() - start < 20_000_000_000L, "the condition did not become true");
      LockSupport.parkNanos(1_000);
    }
  }
}
