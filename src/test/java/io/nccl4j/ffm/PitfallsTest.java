package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.cudart.cudaPointerAttributes;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclConfig;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests that nccl4j avoids the pitfalls of NCCL's C API. The stand-in emulates each of them, and
 * its own test shows that a caller in C is affected.
 */
@OnStandIn
class PitfallsTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final CommunicatorConfig NON_BLOCKING = CONFIG.withBlocking(false);

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();
  private Backend backend;

  @BeforeEach
  void open() {
    backend = NcclBackend.open();
  }

  @AfterEach
  void close() {
    backend.close();
  }

  @Test
  void trap3FailedInitLeavesNoGroupOpenInCallingThread() {
    StandIn.pitfall(3);
    for (String function : List.of("ncclCommInitRankConfig", "ncclCommInitRankScalable")) {
      StandIn.fail(function, 1, 1);
      List<UniqueId> ids = List.of(backend.newUniqueId());
      NcclException failed =
          assertThrows(
              NcclException.class,
              () ->
                  (function.endsWith("Scalable")
                          ? NcclBackend.of(backend)
                              .newCommunicator(ids, 1, 0, NcclConfig.of(CONFIG))
                          : backend.newCommunicator(ids.getFirst(), 1, 0, CONFIG))
                      .close());
      assertSame(NcclResult.UNHANDLED_CUDA_ERROR, failed.result());
      assertNoGroupIsOpen();
    }
  }

  @Test
  void trap3RefusedDestroyLeavesNoGroupOpenInCallingThread() {
    StandIn.pitfall(3);
    Communicator comm = singleRank(CONFIG);
    StandIn.fail("ncclCommDestroy", 4, 1);
    assertThrows(NcclException.class, comm::close);
    comm.close();
    assertEquals(1, StandIn.calls("ncclCommDestroy"), "the second close does nothing");
    assertEquals(1, StandIn.calls("ncclCommAbort"), "the abort frees it");
    assertNoGroupIsOpen();
  }

  /** Checks that no group is open: in an open group the sum would never be computed. */
  private void assertNoGroupIsOpen() {
    try (Communicator comm = singleRank(CONFIG);
        Stream stream = comm.newStream();
        Buffer from = comm.newBuffer(DataType.INT32, 1);
        Buffer to = comm.newBuffer(DataType.INT32, 1)) {
      from.copyFromAsync(MemorySegment.ofArray(new int[] {5}), stream);
      comm.allReduce(from, to, ReduceOp.SUM, stream);
      int[] got = new int[1];
      to.copyTo(MemorySegment.ofArray(got), stream);
      assertArrayEquals(new int[] {5}, got);
    }
  }

  @Test
  void trap4ChildPendingAfterSuccessIsAwaited() {
    StandIn.pitfall(4);
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, NON_BLOCKING);
    Communicator parent = ranks.getFirst();
    StandIn.hold(150);
    try (Communicator rest = parent.shrink(Set.of(1), ShrinkMode.FINISH_FIRST, NON_BLOCKING)) {
      assertEquals(1, rest.size());
      assertEquals(3, sum(rest, 3));
      try (Communicator split = rest.split(0, 0)) {
        assertEquals(4, sum(split, 4));
      }
      UniqueId id = rest.newGrowId();
      List<Communicator> grown = new ArrayList<>();
      Group.run(
          () -> {
            grown.add(rest.grow(2, id, NON_BLOCKING));
            grown.add(backend.join(id, 2, 1, NON_BLOCKING.withDevice(2)));
          });
      assertEquals(List.of(0, 1), grown.stream().map(Communicator::rank).toList());
      StandIn.hold(0);
      grown.parallelStream().forEach(Communicator::close);
    }
    StandIn.hold(0);
    ranks.parallelStream().forEach(Communicator::close);
  }

  @Test
  void trap4PointerWrittenAfterTimeoutHasValidMemory() throws Exception {
    StandIn.pitfall(4);
    CommunicatorConfig shortTimeout = NON_BLOCKING.withTimeout(Duration.ofMillis(200));
    Communicator parent = Creation.retry(NcclException.class, () -> singleRank(shortTimeout));
    StandIn.hold(-1);
    Pair.assertTimesOut("ncclCommSplit", () -> parent.split(0, 0, shortTimeout));
    // Now the stand-in writes the child's pointer, and the parent becomes usable.
    StandIn.hold(0);
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
    while (communicators.live() < 2 && System.nanoTime() < end) {
      LockSupport.parkNanos(10_000_000);
    }
    assertEquals(2, communicators.live(), "the child was created late");
    Pair.awaitIdle(parent);
    assertEquals(7, sum(parent, 7));
    parent.close();
    assertEquals(0, communicators.live(), "the parent's close freed the late child too");
  }

  @Test
  void trap5RankSizeAndDeviceAreKnownDuringPendingCall() throws Exception {
    Communicator comm = singleRank(NON_BLOCKING);
    long queries = rankQueries();
    StandIn.hold(-1);
    CompletableFuture<Communicator> pending =
        CompletableFuture.supplyAsync(
            () -> comm.split(0, 0, NON_BLOCKING), task -> Thread.ofPlatform().start(task));
    for (int i = 0; i < 50; i++) {
      assertEquals(0, comm.rank());
      assertEquals(1, comm.size());
      assertEquals(0, comm.device());
      LockSupport.parkNanos(1_000_000);
    }
    assertFalse(pending.isDone());
    assertEquals(queries, rankQueries(), "NCCL would return ncclInvalidArgument");
    StandIn.hold(0);
    pending.get(20, TimeUnit.SECONDS).close();
    comm.close();
  }

  private static long rankQueries() {
    return StandIn.calls("ncclCommUserRank")
        + StandIn.calls("ncclCommCount")
        + StandIn.calls("ncclCommCuDevice");
  }

  @Test
  void trap6ExcludedRanksOfShrinkAreNotModified() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1, 2, 3}, CONFIG);
    Set<Integer> excluded = new LinkedHashSet<>(List.of(3, 0));
    List<Communicator> rest = new ArrayList<>();
    Group.run(
        () -> {
          for (int r : new int[] {1, 2}) {
            rest.add(ranks.get(r).shrink(excluded, ShrinkMode.FINISH_FIRST, CONFIG));
          }
        });
    assertEquals(List.of(3, 0), List.copyOf(excluded), "not sorted");
    assertEquals(List.of(0, 1), rest.stream().map(Communicator::rank).toList());
    assertThrows(
        IllegalArgumentException.class,
        () -> ranks.getFirst().shrink(Set.of(), ShrinkMode.FINISH_FIRST, CONFIG));
    assertEquals(2, StandIn.calls("ncclCommShrink"), "none for an empty set");
    rest.parallelStream().forEach(Communicator::close);
    ranks.parallelStream().forEach(Communicator::close);
  }

  @Test
  void trap6RankWithoutColorGetsNoCommunicator() {
    try (Communicator comm = singleRank(CONFIG)) {
      comm.splitNoColor();
      assertEquals(1, communicators.live());
      assertEquals(9, sum(comm, 9), "the parent is still usable");
    }
  }

  @Test
  void trap7ExistingCoordinatingAndNewRanksGrow() {
    List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1}, CONFIG);
    UniqueId id = ranks.getLast().newGrowId();
    List<Communicator> grown = new ArrayList<>();
    Group.run(
        () -> {
          grown.add(ranks.getFirst().grow(3, CONFIG));
          grown.add(ranks.getLast().grow(3, id, CONFIG));
          grown.add(backend.join(id, 3, 2, CONFIG));
        });
    assertEquals(
        IntStream.range(0, 3).boxed().toList(), grown.stream().map(Communicator::rank).toList());
    assertThrows(IllegalArgumentException.class, () -> ranks.getLast().grow(3, id, CONFIG), "used");
    assertEquals(3, StandIn.calls("ncclCommGrow"), "a used id is refused before the call");
    grown.parallelStream().forEach(Communicator::close);
    ranks.parallelStream().forEach(Communicator::close);
  }

  @Test
  void trap8CloseOfOneRankAloneTimesOut() {
    StandIn.pitfall(8);
    CommunicatorConfig shortTimeout = CONFIG.withTimeout(Duration.ofMillis(300));
    List<Communicator> ranks =
        Creation.retry(
            NcclException.class, () -> backend.newCommunicators(new int[] {0, 1}, shortTimeout));
    NcclTimeoutException thrown =
        assertThrows(NcclTimeoutException.class, () -> ranks.getFirst().close());
    assertEquals("ncclCommDestroy", thrown.function());
    ranks.getLast().close();
    awaitNoCommunicator();
  }

  @Test
  void trap8RanksOfOneThreadCloseTogether() {
    StandIn.pitfall(8);
    backend.newCommunicators(new int[] {0, 1, 2}, CONFIG).close();
    awaitNoCommunicator();
  }

  @Test
  void trap8RevokedCommunicatorIsDestroyedNotFinalized() {
    Communicator comm = singleRank(CONFIG);
    NcclCommunicator.of(comm).revoke();
    comm.close();
    assertEquals(0, StandIn.calls("ncclCommFinalize"));
    assertEquals(1, StandIn.calls("ncclCommDestroy"));
    assertEquals(0, StandIn.calls("ncclCommAbort"));
  }

  /** Waits for the destroy that timed out, which continues in another thread. */
  private void awaitNoCommunicator() {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
    while (communicators.live() > 0 && System.nanoTime() < end) {
      LockSupport.parkNanos(10_000_000);
    }
  }

  @Test
  void trap12MixOfBlockingAndNonBlockingIsRefused() {
    try (Communicator blocking = singleRank(CONFIG);
        Communicator other = singleRank(NON_BLOCKING);
        Stream stream = blocking.newStream();
        Buffer value = blocking.newBuffer(DataType.INT32, 1);
        Buffer another = blocking.newBuffer(DataType.INT32, 1)) {
      IllegalArgumentException refused =
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  Group.run(
                      () -> {
                        blocking.allReduce(value, value, ReduceOp.SUM, stream);
                        other.allReduce(another, another, ReduceOp.SUM, stream);
                      }));
      assertTrue(refused.getMessage().contains("mixes blocking"), refused::toString);
      assertEquals(0, StandIn.calls("ncclAllReduce"));
    }
  }

  @Test
  void trap12MixOfInitAndCommunicationIsRefused() {
    try (Communicator comm = singleRank(CONFIG);
        Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      long made = StandIn.calls("ncclCommInitRankConfig");
      UniqueId id = backend.newUniqueId();
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        comm.allReduce(value, value, ReduceOp.SUM, stream);
                        backend.newCommunicator(id, 1, 0, CONFIG);
                      }));
      assertTrue(refused.getMessage().contains("use a group for each"), refused::toString);
      assertEquals(made, StandIn.calls("ncclCommInitRankConfig"));
      assertEquals(0, StandIn.calls("ncclAllReduce"));
    }
  }

  @Test
  void trap13SecondThreadIsRefusedWithoutHarm() throws Exception {
    StandIn.pitfall(13);
    try (Pair pair = new Pair(CONFIG.withTimeout(Duration.ofSeconds(30)));
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 1);
        Buffer peers = pair.rank(1).newBuffer(DataType.INT32, 1)) {
      Communicator comm = pair.rank(0);
      Stream stream = pair.stream(0);
      // The first call connects, so it stays inside NCCL until the peer calls.
      Thread first =
          Thread.ofPlatform()
              .daemon()
              .start(() -> comm.allReduce(value, value, ReduceOp.SUM, stream));
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
      while (StandIn.calls("ncclAllReduce") == 0 && System.nanoTime() < end) {
        LockSupport.parkNanos(1_000_000);
      }
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
      assertTrue(refused.getMessage().contains("in use by another thread"), refused::toString);
      assertEquals(1, StandIn.calls("ncclAllReduce"), "the second call did not reach NCCL");
      Pair.onOwnThread(() -> pair.rank(1).allReduce(peers, peers, ReduceOp.SUM, pair.stream(1)));
      assertTrue(first.join(Duration.ofSeconds(20)));
      assertTrue(comm.asyncError().isEmpty());
      stream.synchronize();
      pair.stream(1).synchronize();
    }
  }

  /** NCCL calls this unsafe, but ranks that share a GPU always do it; see docs/threads.md. */
  @Test
  void trap13TwoThreadsMayUseTwoCommunicatorsOfOneDevice() throws Exception {
    StandIn.pitfall(13);
    try (Communicator first = singleRank(CONFIG);
        Communicator second = singleRank(CONFIG)) {
      assertEquals(first.device(), second.device());
      FutureTask<Integer> other = new FutureTask<>(() -> sum(first, 3));
      Thread thread = Thread.ofPlatform().daemon().start(other);
      while (StandIn.calls("ncclAllReduce") == 0 && thread.isAlive()) {
        LockSupport.parkNanos(1_000_000);
      }
      // The pitfall prolongs the first call, which is still inside NCCL.
      assertEquals(4, sum(second, 4));
      assertEquals(3, other.get(20, TimeUnit.SECONDS));
      assertEquals(2, StandIn.calls("ncclAllReduce"));
    }
  }

  @Test
  void trap13AbortLetsTheThreadInsideNcclFree() throws Exception {
    Communicator comm = singleRank(NON_BLOCKING);
    try (Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      StandIn.hold(-1);
      Throwable[] end = new Throwable[1];
      Thread inside =
          Thread.ofPlatform()
              .daemon()
              .unstarted(() -> comm.allReduce(value, value, ReduceOp.SUM, stream));
      inside.setUncaughtExceptionHandler((thread, failure) -> end[0] = failure);
      inside.start();
      while (StandIn.calls("ncclAllReduce") == 0) {
        LockSupport.parkNanos(1_000_000);
      }
      comm.abort();
      assertTrue(inside.join(Duration.ofSeconds(10)), "released");
      assertTrue(end[0] instanceof NcclException, () -> String.valueOf(end[0]));
      assertEquals(1, StandIn.calls("ncclCommAbort"), "freed once");
    }
    comm.close();
  }

  @Test
  void trap14ObjectsAreMadeOnTheirOwnDevice() {
    StandIn.pitfall(14);
    List<Communicator> ranks = backend.newCommunicators(new int[] {2, 5}, CONFIG);
    try {
      for (int i = 0; i < 3; i++) {
        List<Stream> streams = new ArrayList<>();
        List<Buffer> values = new ArrayList<>();
        for (Communicator rank : ranks) {
          streams.add(rank.newStream());
          values.add(rank.newBuffer(DataType.INT32, 1));
          values.getLast().copyFromAsync(MemorySegment.ofArray(new int[] {3}), streams.getLast());
          assertEquals(rank.device(), deviceOf(values.getLast()), "the device according to CUDA");
        }
        Group.run(
            () -> {
              for (int rank = 0; rank < 2; rank++) {
                Buffer value = values.get(rank);
                ranks.get(rank).allReduce(value, value, ReduceOp.SUM, streams.get(rank));
              }
            });
        for (int rank = 0; rank < 2; rank++) {
          int[] got = new int[1];
          values.get(rank).copyTo(MemorySegment.ofArray(got), streams.get(rank));
          assertArrayEquals(new int[] {6}, got);
        }
        values.forEach(Buffer::close);
        streams.forEach(Stream::close);
      }
    } finally {
      ranks.forEach(Communicator::abort);
    }
  }

  private static int deviceOf(Buffer buffer) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment attributes = cudaPointerAttributes.allocate(arena);
      MemorySegment address = MemorySegment.ofAddress(buffer.address());
      assertEquals(0, cudart_h.cudaPointerGetAttributes(attributes, address));
      return cudaPointerAttributes.device(attributes);
    }
  }

  private Communicator singleRank(CommunicatorConfig config) {
    return backend.newCommunicator(backend.newUniqueId(), 1, 0, config);
  }

  private static int sum(Communicator comm, int mine) {
    try (Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      value.copyFromAsync(MemorySegment.ofArray(new int[] {mine}), stream);
      comm.allReduce(value, value, ReduceOp.SUM, stream);
      int[] got = new int[1];
      value.copyTo(MemorySegment.ofArray(got), stream);
      return got[0];
    }
  }
}
