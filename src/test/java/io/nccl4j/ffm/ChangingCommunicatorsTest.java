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
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.MemoryStatistics;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclConfig;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests the operations on communicators that only NCCL has: its configuration, several ids, revoke,
 * suspend, and the asynchronous forms.
 */
@OnStandIn
class ChangingCommunicatorsTest {
  private static final CommunicatorConfig COMMON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final NcclConfig CONFIG = NcclConfig.of(COMMON);
  private static final NcclConfig NON_BLOCKING = NcclConfig.of(COMMON.withBlocking(false));
  private static final NcclConfig SHORT_TIMEOUT =
      NcclConfig.of(COMMON.withBlocking(false).withTimeout(Duration.ofMillis(400)));

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
  void configFieldsReachTheLibrary() {
    NcclConfig config =
        NcclConfig.of(COMMON.withName("read"))
            .withNetName("Socket")
            .withMaxCtas(4)
            .withMinCtas(2)
            .withMaxP2pPeers(3);
    try (Communicator comm = singleRank(config)) {
      assertEquals(config, NcclCommunicator.of(comm).config());
      MemorySegment read = StandIn.lastConfig(ncclConfig_t.layout());
      assertEquals("read", ncclConfig_t.commName(read).getString(0));
      assertEquals("Socket", ncclConfig_t.netName(read).getString(0));
      assertEquals(4, ncclConfig_t.maxCTAs(read));
      assertEquals(2, ncclConfig_t.minCTAs(read));
      assertEquals(3, ncclConfig_t.maxP2pPeers(read));
      assertEquals(Integer.MIN_VALUE, ncclConfig_t.cgaClusterSize(read));
    }
  }

  @Test
  void childMadeByTheContractKeepsNcclConfigFields() {
    try (Communicator comm = singleRank(CONFIG.withTrafficClass(5));
        Communicator child = comm.split(0, 0, COMMON.withName("child"))) {
      assertEquals(5, ncclConfig_t.trafficClass(StandIn.lastConfig(ncclConfig_t.layout())));
      assertEquals(
          CONFIG.withTrafficClass(5).withCommon(COMMON.withName("child")),
          NcclCommunicator.of(child).config());
      NcclCommunicator.of(comm).split(0, 0, CONFIG.withTrafficClass(6)).close();
      assertEquals(6, ncclConfig_t.trafficClass(StandIn.lastConfig(ncclConfig_t.layout())));
    }
  }

  @Test
  void contradictoryConfigFieldsAreRefusedBeforeAnyCall() {
    UniqueId id = backend.newUniqueId();
    assertThrows(
        IllegalArgumentException.class,
        () -> NcclBackend.of(backend).newCommunicator(id, 1, 0, CONFIG.withMinCtas(2)));
    assertEquals(0, StandIn.calls("ncclCommInitRankConfig"));
  }

  @Test
  void viewHasItsCommunicator() {
    try (Communicator comm = singleRank(CONFIG)) {
      assertSame(comm, NcclCommunicator.of(comm).communicator());
    }
  }

  @Test
  void ranksConnectBySeveralIds() {
    List<UniqueId> ids = List.of(backend.newUniqueId(), backend.newUniqueId());
    List<Communicator> ranks =
        ranks(3, r -> NcclBackend.of(backend).newCommunicator(ids, 3, r, CONFIG));
    assertEquals(3, StandIn.calls("ncclCommInitRankScalable"));
    assertEquals(0, StandIn.calls("ncclCommInitRankConfig"));
    assertEquals(2, ranks.get(2).rank());
    closeAll(ranks);
  }

  @Test
  void impossibleListsOfIdsAreRefused() {
    UniqueId id = backend.newUniqueId();
    UniqueId other = backend.newUniqueId();
    refused("ids has 0 ids; it must have from 1 to worldSize, 2", List.of());
    refused(
        "ids has 3 ids; it must have from 1 to worldSize, 2",
        List.of(id, other, backend.newUniqueId()));
    refused("ids contains an id twice: " + List.of(id, id), List.of(id, id));
    assertEquals(0, StandIn.calls("ncclCommInitRankScalable"));
  }

  private void refused(String message, List<UniqueId> ids) {
    assertEquals(
        message,
        assertThrows(
                IllegalArgumentException.class,
                () -> NcclBackend.of(backend).newCommunicator(ids, 2, 0, CONFIG))
            .getMessage());
  }

  @Test
  void revokeEndsStuckWorkAndAllowsSplit() {
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    List<Communicator> ranks = pair(NON_BLOCKING);
    Communicator stuck = ranks.getFirst();
    try (Stream stream = stuck.newStream();
        Buffer value = stuck.newBuffer(DataType.INT32, 1)) {
      stuck.allReduce(value, value, ReduceOp.SUM, stream);
      assertFalse(stream.isComplete());
      NcclCommunicator.of(stuck).revoke();
      NcclCommunicator.of(stuck).revoke();
      assertEquals(1, StandIn.calls("ncclCommRevoke"));
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      long calls = StandIn.calls("ncclAllReduce");
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () -> stuck.allReduce(value, value, ReduceOp.SUM, stream));
      assertTrue(refused.getMessage().startsWith("revoked: "), refused::toString);
      assertThrows(IllegalStateException.class, NcclCommunicator.of(stuck)::suspend);
      assertEquals(calls, StandIn.calls("ncclAllReduce"), "refused before any call");
      NcclCommunicator.of(ranks.getLast()).revoke();
      List<Communicator> children = ranks(2, r -> ranks.get(r).split(0, 0));
      assertArrayEquals(new int[] {2}, sumOfOnes(children));
      closeAll(children);
    }
    long finalized = StandIn.calls("ncclCommFinalize");
    closeAll(ranks);
    assertEquals(finalized, StandIn.calls("ncclCommFinalize"), "revoked ones are not finalized");
  }

  @Test
  void communicatorCanBeClosedAfterFailedRevoke() {
    Communicator comm = singleRank(CONFIG);
    StandIn.fail("ncclCommRevoke", 3, 1);
    NcclException failed = assertThrows(NcclException.class, NcclCommunicator.of(comm)::revoke);
    assertEquals("ncclCommRevoke", failed.function());
    comm.close();
    assertEquals(1, StandIn.calls("ncclCommAbort"));
  }

  @Test
  void suspendedCommunicatorRefusesCallsUntilResumed() {
    List<Communicator> ranks = pair(CONFIG);
    Communicator first = ranks.getFirst();
    MemoryStatistics active = NcclCommunicator.of(first).memoryStatistics();
    assertFalse(active.suspended());
    assertEquals(active.totalBytes(), active.suspendableBytes() + active.persistentBytes());
    assertThrows(IllegalStateException.class, NcclCommunicator.of(first)::resume);
    each(ranks, comm -> NcclCommunicator.of(comm).suspend());
    assertTrue(NcclCommunicator.of(first).isSuspended());
    assertTrue(NcclCommunicator.of(first).memoryStatistics().suspended());
    assertTrue(first.isOpen());
    try (Stream stream = first.newStream();
        Buffer value = first.newBuffer(DataType.INT32, 1)) {
      IllegalStateException refused =
          assertThrows(
              IllegalStateException.class,
              () -> first.allReduce(value, value, ReduceOp.SUM, stream));
      assertTrue(refused.getMessage().startsWith("suspended: "), refused::toString);
      refused = assertThrows(IllegalStateException.class, () -> first.barrier(stream));
      assertTrue(refused.getMessage().startsWith("suspended: "), refused::toString);
      assertEquals(0, StandIn.calls("ncclAllReduce"), "refused before any call");
    }
    assertThrows(IllegalStateException.class, NcclCommunicator.of(first)::suspend);
    assertThrows(IllegalStateException.class, () -> first.split(0, 0));
    each(ranks, comm -> NcclCommunicator.of(comm).resume());
    assertFalse(NcclCommunicator.of(first).isSuspended());
    assertArrayEquals(new int[] {2}, sumOfOnes(ranks));
    closeAll(ranks);
  }

  @Test
  void suspendWaitsForEnqueuedWork() {
    List<Communicator> ranks = pair(CONFIG);
    Communicator first = ranks.getFirst();
    Communicator second = ranks.getLast();
    try (Stream stream = first.newStream();
        Stream late = second.newStream();
        Buffer value = first.newBuffer(DataType.INT32, 1);
        Buffer other = second.newBuffer(DataType.INT32, 1)) {
      Group.run(
          () -> {
            first.allReduce(value, value, ReduceOp.SUM, stream);
            second.allReduce(other, other, ReduceOp.SUM, late);
          });
      each(ranks, comm -> NcclCommunicator.of(comm).suspend());
      assertTrue(stream.isComplete());
      assertTrue(late.isComplete());
    }
    each(ranks, Communicator::close);
    assertEquals(2, StandIn.calls("ncclCommResume"), "closing resumes first");
  }

  @Test
  void suspendDuringCaptureIsRefusedAndCaptureContinues() {
    try (Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0);
        Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      Runnable body =
          () -> {
            comm.allReduce(value, value, ReduceOp.SUM, stream);
            IllegalStateException refused =
                assertThrows(IllegalStateException.class, NcclCommunicator.of(comm)::suspend);
            assertTrue(
                refused.getMessage().startsWith("ncclCommSuspend is not possible on a stream"),
                refused::toString);
          };
      try (Graph graph = Graph.capture(stream, body)) {
        graph.launch(stream);
        stream.synchronize();
      }
    }
  }

  @Test
  void suspendOfOneRankAloneTimesOut() {
    List<Communicator> ranks = Creation.retry(NcclException.class, () -> pair(SHORT_TIMEOUT));
    NcclTimeoutException thrown =
        assertThrows(
            NcclTimeoutException.class, () -> NcclCommunicator.of(ranks.getFirst()).suspend());
    assertEquals("ncclCommSuspend", thrown.function());
    assertFalse(NcclCommunicator.of(ranks.getFirst()).isSuspended(), "in progress is not success");
    ranks.forEach(Communicator::abort);
  }

  @Test
  void asynchronousFormsComplete() throws Exception {
    StandIn.hold(100);
    UniqueId id = backend.newUniqueId();
    Communicator comm = await(NcclBackend.of(backend).newCommunicatorAsync(id, 1, 0, NON_BLOCKING));
    assertEquals(1, comm.size());
    UniqueId growId = comm.newGrowId();
    NcclConfig onSecond = NcclConfig.of(NON_BLOCKING.common().withDevice(1));
    CompletionStage<Communicator> joining =
        NcclBackend.of(backend).joinAsync(growId, 2, 1, onSecond);
    Communicator grown = NcclCommunicator.of(comm).grow(2, growId, NON_BLOCKING);
    Communicator joined = await(joining);
    assertEquals(2, grown.size());
    assertEquals(1, joined.rank());
    List<UniqueId> ids = List.of(backend.newUniqueId());
    Communicator byIds =
        await(NcclBackend.of(backend).newCommunicatorAsync(ids, 1, 0, NON_BLOCKING));
    closeAll(List.of(grown, joined, comm, byIds));
  }

  @Test
  void stageTimesOutIfRanksAreMissing() throws Exception {
    UniqueId id = backend.newUniqueId();
    assertTimesOut(NcclBackend.of(backend).newCommunicatorAsync(id, 2, 0, SHORT_TIMEOUT));
  }

  @Test
  void splitAndCloseInProgressTimeOut() {
    Communicator comm = Creation.retry(NcclException.class, () -> singleRank(SHORT_TIMEOUT));
    CommunicatorConfig twoSeconds = NON_BLOCKING.common().withTimeout(Duration.ofSeconds(2));
    Communicator other =
        Creation.retry(NcclException.class, () -> singleRank(NcclConfig.of(twoSeconds)));
    StandIn.pitfall(4);
    StandIn.hold(-1);
    assertThrows(
        NcclTimeoutException.class, () -> NcclCommunicator.of(comm).split(0, 0, SHORT_TIMEOUT));
    assertThrows(NcclTimeoutException.class, other::close);
    comm.abort();
  }

  @Test
  void asynchronousFormIsRefusedInGroup() {
    UniqueId id = backend.newUniqueId();
    IllegalStateException refused =
        assertThrows(
            IllegalStateException.class,
            () -> Group.run(() -> NcclBackend.of(backend).newCommunicatorAsync(id, 1, 0, CONFIG)));
    assertTrue(refused.getMessage().contains("belongs to no group"), refused::toString);
    assertEquals(0, StandIn.calls("ncclCommInitRankConfig"));
  }

  @Test
  void asynchronousFormThrowsForBadArguments() {
    UniqueId id = backend.newUniqueId();
    assertThrows(
        IllegalArgumentException.class,
        () -> NcclBackend.of(backend).newCommunicatorAsync(id, 1, 1, CONFIG));
    assertThrows(
        NullPointerException.class,
        () -> NcclBackend.of(backend).newCommunicatorAsync((UniqueId) null, 1, 0, CONFIG));
  }

  @Test
  void failedShrinkNamesItsFunction() {
    List<Communicator> ranks = pair(CONFIG);
    StandIn.fail("ncclCommShrink", 5, 1);
    NcclInvalidUsageException failed =
        assertThrows(
            NcclInvalidUsageException.class,
            () ->
                NcclCommunicator.of(ranks.getFirst())
                    .shrink(Set.of(1), ShrinkMode.FINISH_FIRST, CONFIG));
    assertEquals("ncclCommShrink", failed.function());
    assertSame(NcclResult.INVALID_USAGE, failed.result());
    closeAll(ranks);
  }

  private Communicator singleRank(NcclConfig config) {
    return NcclBackend.of(backend).newCommunicator(backend.newUniqueId(), 1, 0, config);
  }

  private List<Communicator> pair(NcclConfig config) {
    UniqueId id = backend.newUniqueId();
    return ranks(2, r -> NcclBackend.of(backend).newCommunicator(id, 2, r, config));
  }

  private static List<Communicator> ranks(int n, Function<Integer, Communicator> make) {
    List<Communicator> made = new ArrayList<>();
    Group.run(
        () -> {
          for (int r = 0; r < n; r++) {
            made.add(make.apply(r));
          }
        });
    return made;
  }

  private interface Action {
    void run(Communicator comm);
  }

  /** Runs an action on all ranks at the same time. */
  private static void each(List<Communicator> ranks, Action action) {
    List<CompletableFuture<Void>> ends =
        ranks.stream()
            .map(
                comm ->
                    CompletableFuture.runAsync(
                        () -> action.run(comm), task -> Thread.ofPlatform().daemon().start(task)))
            .toList();
    ends.forEach(end -> end.orTimeout(20, TimeUnit.SECONDS).join());
  }

  private static void closeAll(List<Communicator> ranks) {
    each(ranks, Communicator::close);
  }

  private static int[] sumOfOnes(List<Communicator> ranks) {
    List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
    List<Buffer> values = ranks.stream().map(c -> c.newBuffer(DataType.INT32, 1)).toList();
    Group.run(
        () -> {
          for (int r = 0; r < ranks.size(); r++) {
            values.get(r).copyFromAsync(MemorySegment.ofArray(new int[] {1}), streams.get(r));
            ranks.get(r).allReduce(values.get(r), values.get(r), ReduceOp.SUM, streams.get(r));
          }
        });
    int[] sum = new int[1];
    values.getFirst().copyTo(MemorySegment.ofArray(sum), streams.getFirst());
    streams.forEach(Stream::synchronize);
    streams.forEach(Stream::close);
    values.forEach(Buffer::close);
    return sum;
  }

  private static <T> T await(CompletionStage<T> stage) throws Exception {
    return stage.toCompletableFuture().get(20, TimeUnit.SECONDS);
  }

  private static void assertTimesOut(CompletionStage<?> stage) throws Exception {
    Throwable failure = failure(stage, 20);
    assertInstanceOf(NcclTimeoutException.class, failure);
    assertTrue(failure.getMessage().contains("0.4 s"), failure::toString);
  }

  private static Throwable failure(CompletionStage<?> stage, int seconds) throws Exception {
    return assertThrows(
            ExecutionException.class,
            () -> stage.toCompletableFuture().get(seconds, TimeUnit.SECONDS))
        .getCause();
  }
}
