package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests how the NCCL backend handles native calls that fail or take long. */
@OnStandIn
class NativeFailuresTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));

  private static final int OUT_OF_MEMORY = 2;
  private static final int ILLEGAL_ADDRESS = 700;

  private Backend backend;
  private Communicator comm;
  private Stream stream;
  private Buffer value;

  @BeforeEach
  void open() throws InterruptedException {
    awaitNoConnectingRanks();
    StandIn.reset();
    backend = Backend.nccl();
    comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    stream = comm.newStream();
    value = ints(5);
    stream.synchronize();
  }

  @AfterEach
  void close() {
    StandIn.reset();
    value.close();
    comm.close();
    stream.close();
    backend.close();
  }

  private Buffer ints(int... values) {
    Buffer buffer = comm.newBuffer(DataType.INT32, values.length);
    buffer.copyFromAsync(MemorySegment.ofArray(values), stream);
    return buffer;
  }

  private int[] download(Buffer buffer) {
    int[] values = new int[(int) buffer.count()];
    buffer.copyTo(MemorySegment.ofArray(values), stream);
    return values;
  }

  @Test
  void bufferCanBeClosedAfterRefusedCollective() {
    for (int i = 0; i < 50; i++) {
      Buffer large = comm.newBuffer(DataType.INT32, 1 << 20);
      large.fill((byte) i, stream);
      StandIn.fail("ncclAllReduce", 5, 1);
      assertThrows(
          NcclInvalidUsageException.class,
          () -> comm.allReduce(large, large, ReduceOp.SUM, stream));
      assertDoesNotThrow(large::close);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "1, UNHANDLED_CUDA_ERROR",
    "2, SYSTEM_ERROR",
    "3, INTERNAL_ERROR",
    "4, INVALID_ARGUMENT",
    "5, INVALID_USAGE",
    "6, REMOTE_ERROR",
    "8, TIMEOUT",
    "99, UNKNOWN",
    "-7, UNKNOWN"
  })
  void resultCodeBecomesException(int code, NcclResult result) {
    StandIn.fail("ncclAllReduce", code, 1);
    NcclException thrown =
        assertThrows(NcclException.class, () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
    assertEquals("ncclAllReduce", thrown.function());
    assertEquals(code, thrown.code());
    assertSame(result, thrown.result());
    assertTrue(thrown.getMessage().startsWith("ncclAllReduce: "), thrown::toString);
    Map<NcclResult, Class<?>> kinds =
        Map.of(
            NcclResult.UNHANDLED_CUDA_ERROR, NcclSystemException.class,
            NcclResult.SYSTEM_ERROR, NcclSystemException.class,
            NcclResult.INVALID_ARGUMENT, NcclInvalidUsageException.class,
            NcclResult.INVALID_USAGE, NcclInvalidUsageException.class,
            NcclResult.REMOTE_ERROR, NcclRemoteException.class,
            NcclResult.TIMEOUT, NcclTimeoutException.class);
    assertSame(kinds.getOrDefault(result, NcclException.class), thrown.getClass());
  }

  @Test
  void exceptionNamesFailedFunction() {
    Buffer other = ints(7);
    Map<String, Executable> calls = new TreeMap<>();
    calls.put("ncclAllReduce", () -> comm.allReduce(value, other, ReduceOp.SUM, stream));
    calls.put("ncclBroadcast", () -> comm.broadcast(value, other, 0, stream));
    calls.put("ncclReduce", () -> comm.reduce(value, other, ReduceOp.SUM, 0, stream));
    calls.put("ncclAllGather", () -> comm.allGather(value, other, stream));
    calls.put("ncclReduceScatter", () -> comm.reduceScatter(value, other, ReduceOp.SUM, stream));
    calls.put("ncclAlltoAll", () -> comm.allToAll(value, other, stream));
    calls.put("ncclGather", () -> comm.gather(value, other, 0, stream));
    calls.put("ncclScatter", () -> comm.scatter(value, other, 0, stream));
    calls.put("ncclSend", () -> Group.run(() -> comm.send(value, 0, stream)));
    calls.put("ncclRecv", () -> Group.run(() -> comm.recv(value, 0, stream)));
    calls.put("ncclRedOpCreatePreMulSum", () -> comm.newPreMulSum(DataType.INT32, 1));
    calls.put("ncclCommSplit", () -> comm.split(0, 0));
    calls.put("ncclGetUniqueId", backend::newUniqueId);
    calls.forEach(
        (function, call) -> {
          StandIn.fail(function, 3, 1);
          NcclException thrown = assertThrows(NcclException.class, call, function);
          assertEquals(function, thrown.function());
          assertSame(NcclResult.INTERNAL_ERROR, thrown.result());
        });
    comm.allReduce(value, other, ReduceOp.SUM, stream);
    assertArrayEquals(new int[] {5}, download(other), "the communicator is still usable");
    other.close();
  }

  @Test
  void cudaErrorBecomesExceptionWithItsName() {
    Buffer other = ints(7);
    Map<String, Executable> calls = new TreeMap<>();
    calls.put("cudaMalloc", () -> comm.newBuffer(DataType.INT8, 1));
    calls.put("cudaMemcpyAsync", () -> value.copyFromAsync(other, stream));
    calls.put("cudaMemsetAsync", () -> value.fill((byte) 1, stream));
    calls.put("cudaHostAlloc", () -> backend.newPinnedBuffer(DataType.INT8, 1));
    calls.forEach(
        (function, call) -> {
          // Every call fails: a failed allocation is retried after retained memory is freed.
          StandIn.fail(function, 2, 0);
          CudaException thrown = assertThrows(CudaException.class, call, function);
          assertEquals(function, thrown.function());
          assertEquals("cudaErrorMemoryAllocation", thrown.errorName());
          assertTrue(thrown.getMessage().contains("out of memory"), thrown::toString);
          StandIn.reset();
        });
    other.close();
  }

  @Test
  void failedStreamAndEventCreationThrows() {
    StandIn.fail("cudaStreamCreateWithPriority", 2, 0);
    assertThrows(CudaException.class, comm::newStream);
    StandIn.fail("cudaDeviceGetStreamPriorityRange", 2, 0);
    assertThrows(CudaException.class, () -> comm.newStream(Stream.Priority.HIGH));
    StandIn.fail("cudaEventCreateWithFlags", 2, 0);
    assertThrows(CudaException.class, comm::newEvent);
  }

  @Test
  void failedCallInGroupLaunchesNothingAndClosesGroup() {
    Buffer other = ints(1);
    Buffer third = ints(1);
    StandIn.fail("ncclBroadcast", 4, 1);
    NcclException thrown =
        assertThrows(
            NcclException.class,
            () ->
                Group.run(
                    () -> {
                      comm.allReduce(value, other, ReduceOp.SUM, stream);
                      comm.broadcast(value, third, 0, stream);
                    }));
    assertEquals("ncclBroadcast", thrown.function(), "the first failure is thrown");
    assertArrayEquals(new int[] {1}, download(other));
    comm.allReduce(value, other, ReduceOp.SUM, stream);
    assertArrayEquals(new int[] {5}, download(other), "launched at once: no group is open");
    other.close();
    third.close();
  }

  @Test
  void failedGroupEndThrows() {
    StandIn.fail("ncclGroupEnd", 3, 1);
    Buffer other = ints(1);
    NcclException thrown =
        assertThrows(
            NcclException.class,
            () ->
                Group.run(
                    () -> {
                      comm.allReduce(value, value, ReduceOp.SUM, stream);
                      comm.allReduce(other, other, ReduceOp.SUM, stream);
                    }));
    assertEquals("ncclGroupEnd", thrown.function());
    comm.allReduce(value, value, ReduceOp.SUM, stream);
    assertArrayEquals(new int[] {5}, download(value));
    other.close();
  }

  @Test
  void failedInitLeavesNoGroupOpen() {
    StandIn.pitfall(3);
    StandIn.fail("ncclCommInitRankConfig", 1, 1);
    NcclException thrown =
        assertThrows(
            NcclException.class,
            () -> backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG));
    assertSame(NcclResult.UNHANDLED_CUDA_ERROR, thrown.result());
    Buffer other = ints(1);
    comm.allReduce(value, other, ReduceOp.SUM, stream);
    assertArrayEquals(new int[] {5}, download(other), "launched at once");
    other.close();
  }

  @Test
  void failureOfOneOfSeveralInitsIsThrownAtOnce() {
    StandIn.fail("ncclCommInitRankConfig", 3, 2);
    NcclException thrown =
        assertTimeout(
            Duration.ofSeconds(8),
            () ->
                assertThrows(
                    NcclException.class,
                    () -> backend.newCommunicators(new int[] {0, 1, 2}, CONFIG)));
    assertSame(NcclResult.INTERNAL_ERROR, thrown.result(), thrown::toString);
  }

  @ParameterizedTest(name = "blocking {0}")
  @ValueSource(booleans = {true, false})
  void failedStreamFailsEveryKindOfWait(boolean blocking) {
    Communicator failedComm =
        backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG.withBlocking(blocking));
    Stream failing = failedComm.newStream();
    StandIn.failStream(CudaStream.of(failing).address(), 700);
    assertEquals(
        "cudaErrorIllegalAddress",
        assertThrows(CudaException.class, failing::synchronize).errorName());
    assertEquals(
        "cudaErrorIllegalAddress",
        assertThrows(CudaException.class, failing::isComplete).errorName());
    Throwable ofStage =
        failing
            .completion()
            .handle((nothing, failure) -> failure)
            .toCompletableFuture()
            .orTimeout(8, TimeUnit.SECONDS)
            .join();
    assertInstanceOf(CompletionException.class, ofStage);
    assertInstanceOf(CudaException.class, ofStage.getCause());
    failedComm.abort();
    failedComm.close();
    assertThrows(CudaException.class, failing::close);
    failing.close();
  }

  @Test
  void nonBlockingCallsInProgressAreAwaited() {
    CommunicatorConfig nonBlocking = CONFIG.withBlocking(false);
    StandIn.hold(150);
    try (Communicator slow = backend.newCommunicator(backend.newUniqueId(), 1, 0, nonBlocking);
        Communicator child = slow.split(0, 0)) {
      assertEquals(1, child.size());
      slow.allReduce(value, value, ReduceOp.SUM, stream);
      Group.run(() -> child.allReduce(value, value, ReduceOp.SUM, stream));
      assertArrayEquals(new int[] {5}, download(value));
      assertTrue(child.asyncError().isEmpty());
    }
  }

  @Test
  void splitThatReturnsEarlyIsAwaited() {
    CommunicatorConfig nonBlocking = CONFIG.withBlocking(false);
    StandIn.pitfall(4);
    try (Communicator parent = backend.newCommunicator(backend.newUniqueId(), 1, 0, nonBlocking)) {
      StandIn.hold(100);
      try (Communicator child = parent.split(3, 0)) {
        assertEquals(0, child.rank());
        assertEquals(1, child.size());
        child.allReduce(value, value, ReduceOp.SUM, stream);
        assertArrayEquals(new int[] {5}, download(value));
      }
    }
  }

  @Test
  void callThatStaysInProgressTimesOut() {
    CommunicatorConfig shortTimeout =
        CONFIG.withBlocking(false).withTimeout(Duration.ofMillis(400));
    Communicator stuck =
        Creation.retry(
            NcclException.class,
            () -> backend.newCommunicator(backend.newUniqueId(), 1, 0, shortTimeout));
    StandIn.hold(-1);
    NcclTimeoutException thrown =
        assertTimeout(
            Duration.ofSeconds(8),
            () ->
                assertThrows(
                    NcclTimeoutException.class,
                    () -> stuck.allReduce(value, value, ReduceOp.SUM, stream)));
    assertEquals("ncclAllReduce", thrown.function());
    assertTrue(thrown.getMessage().contains("0.4 s"), thrown::toString);
    stuck.abort();
    stuck.close();
    StandIn.reset();
    assertThrows(CommunicatorAbortedException.class, stream::synchronize);
    assertArrayEquals(new int[] {5}, download(value), "the stream is still usable");
  }

  @Test
  void failedDestroyIsReportedAndNotRepeated() {
    Communicator failedComm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    StandIn.fail("ncclCommDestroy", 3, 1);
    NcclException failure = assertThrows(NcclException.class, failedComm::close);
    assertEquals("ncclCommDestroy", failure.function());
    failedComm.close();
    assertFalse(failedComm.isOpen());
  }

  @ParameterizedTest(name = "{0} fails in call {1}")
  @CsvSource({
    "cudaHostAlloc, 1",
    "cudaHostAlloc, 2",
    "cudaEventCreateWithFlags, 1",
    "cudaEventCreateWithFlags, 2"
  })
  void uploadWithoutStagingMemoryLeavesStreamUsable(String function, int nth) {
    Map<String, Long> before = liveObjects();
    try (Stream fresh = comm.newStream()) {
      StandIn.fail(function, OUT_OF_MEMORY, nth);
      assertEquals(function, assertThrows(CudaException.class, () -> upload(fresh, 1)).function());
      for (int i = 0; i < 4; i++) {
        upload(fresh, i);
        int[] got = new int[1];
        value.copyTo(MemorySegment.ofArray(got), fresh);
        assertEquals(i, got[0]);
      }
    }
    assertEquals(before, liveObjects());
  }

  /**
   * Waits until the ranks of earlier tests connect no more. While several do, the memory of closed
   * buffers is kept; the last one to end frees it, which changes the live objects.
   */
  private static void awaitNoConnectingRanks() throws InterruptedException {
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getName().equals("nccl4j-connect")) {
        assertTrue(thread.join(Duration.ofSeconds(30)), thread + " is still running");
      }
    }
  }

  private void upload(Stream target, int element) {
    value.copyFromAsync(MemorySegment.ofArray(new int[] {element}), target);
  }

  @Test
  void streamIsDestroyedIfItsMemoryCannotBeFreed() {
    Map<String, Long> before = liveObjects();
    Stream fresh = comm.newStream();
    upload(fresh, 1);
    fresh.synchronize();
    StandIn.fail("cudaFreeHost", ILLEGAL_ADDRESS, 1);
    StandIn.fail("cudaStreamDestroy", ILLEGAL_ADDRESS, 1);
    CudaException first = assertThrows(CudaException.class, fresh::close);
    assertEquals("cudaFreeHost", first.function());
    assertEquals(
        "cudaStreamDestroy",
        assertInstanceOf(CudaException.class, first.getSuppressed()[0]).function());
    Map<String, Long> after = liveObjects();
    assertEquals(before.get("pinned") + 1, after.get("pinned"), "only what could not be freed");
    assertEquals(before.get("event"), after.get("event"));
  }

  @Test
  void streamFailureIsNotHiddenByFailedClose() {
    Stream fresh = comm.newStream();
    upload(fresh, 1);
    fresh.synchronize();
    StandIn.failStream(CudaStream.of(fresh).address(), ILLEGAL_ADDRESS);
    StandIn.fail("cudaStreamDestroy", ILLEGAL_ADDRESS, 1);
    CudaException stuck = assertThrows(CudaException.class, fresh::close);
    assertEquals("cudaStreamQuery", stuck.function());
    assertEquals(1, stuck.getSuppressed().length);
    assertEquals(
        "cudaStreamDestroy",
        assertInstanceOf(CudaException.class, stuck.getSuppressed()[0]).function());
  }

  @Test
  void everythingOpenedIsReleased() {
    Map<String, Long> before = liveObjects();
    try (Backend other = Backend.nccl()) {
      List<Communicator> all = new ArrayList<>(other.newCommunicators(new int[] {0, 1}, CONFIG));
      Group.run(() -> all.addAll(all.stream().map(c -> c.split(0, c.rank())).toList()));
      try (Stream extra = all.get(0).newStream();
          Event event = all.get(0).newEvent();
          Buffer device = all.get(0).newBuffer(DataType.INT32, 3);
          Buffer pinned = other.newPinnedBuffer(DataType.INT32, 3);
          ReduceOp.PreMulSum op = all.get(0).newPreMulSum(DataType.INT32, 2)) {
        device.fill((byte) 0, extra);
        device.copyFromAsync(MemorySegment.ofArray(new int[3]), extra);
        device.copyFromAsync(pinned, extra);
        extra.record(event);
        extra.completion().toCompletableFuture().join();
        extra.synchronize();
        assertEquals(DataType.INT32, op.type());
        assertTrue(liveObjects().get("communicator") >= 4);
      }
      all.parallelStream().forEach(Communicator::close);
    }
    // Staging buffers may be retained for later uploads.
    Map<String, Long> after = liveObjects();
    before.remove("pinned");
    after.remove("pinned");
    assertEquals(before, after);
  }

  @Test
  void failedInitReleasesItsResources() throws Exception {
    Map<String, Long> before = liveObjects();
    StandIn.fail("ncclCommUserRank", 3, 1);
    assertThrows(
        NcclException.class, () -> backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG));
    assertEquals(before.get("communicator"), liveObjects().get("communicator"), "after one");
    StandIn.fail("ncclCommInitRankConfig", 3, 2);
    assertThrows(
        NcclException.class,
        () -> backend.newCommunicators(new int[] {0, 1}, CONFIG.withBlocking(false)));
    // A communicator whose thread is inside NCCL when the other fails is freed by that thread.
    for (int i = 0;
        i < 100 && !before.get("communicator").equals(liveObjects().get("communicator"));
        i++) {
      Thread.sleep(50);
    }
    assertEquals(before.get("communicator"), liveObjects().get("communicator"), "after two");
  }

  private static Map<String, Long> liveObjects() {
    Map<String, Long> liveObjects = new TreeMap<>();
    for (String kind :
        List.of("memory", "pinned", "stream", "event", "communicator", "redop", "graph")) {
      liveObjects.put(kind, StandIn.live(kind));
    }
    return liveObjects;
  }
}
