package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclParameters;
import io.nccl4j.nccl.WaitSignal;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import io.nccl4j.nccl.WindowsUnsupportedException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests that nccl4j avoids NCCL's pitfalls in errors, groups, memory, estimates and parameters. */
@OnStandIn
class WindowPitfallsTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final int PAGE_INTS = 1024;

  private Pair pair;

  @BeforeEach
  void open() {
    StandIn.reset();
    pair = new Pair(CONFIG);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    pair.close();
  }

  @Test
  void trap1LastErrorIsCopiedAtTheFailure() throws Exception {
    Buffer value = pair.rank(0).newBuffer(DataType.INT32, 1);
    StandIn.fail("ncclAllReduce", 3, 1);
    NcclException first =
        assertThrows(
            NcclException.class,
            () -> pair.rank(0).allReduce(value, value, ReduceOp.SUM, pair.stream(0)));
    StandIn.fail("ncclGetUniqueId", 2, 1);
    Thread other =
        Thread.ofPlatform()
            .start(() -> assertThrows(NcclException.class, pair.backend()::newUniqueId));
    other.join();
    assertEquals("nccl4j stand-in: ncclAllReduce fails on demand with 3", first.lastError());
    // An unknown parameter leaves that buffer unchanged.
    IllegalArgumentException missing =
        assertThrows(
            IllegalArgumentException.class,
            () -> NcclBackend.of(pair.backend()).parameters().text("NCCL_NONE"));
    assertFalse(missing.getMessage().contains("on demand"), missing::toString);
    value.close();
  }

  @Test
  void trap2GroupWithRefusedCallLaunchesNothing() {
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    for (int rank = 0; rank < 2; rank++) {
      pair.upload(rank, values.get(rank), 1);
    }
    StandIn.fail("ncclBroadcast", 4, 1);
    Buffer other = pair.rank(1).newBuffer(DataType.INT32, 1);
    NcclException refused =
        assertThrows(
            NcclException.class,
            () ->
                Group.run(
                    () -> {
                      reduceOnBoth(values);
                      pair.rank(1).broadcast(values.get(1), other, 0, pair.stream(1));
                    }));
    assertEquals("ncclBroadcast", refused.function());
    assertEquals(4, refused.code());
    assertArrayEquals(new int[] {1}, pair.download(0, values.get(0)), "nothing was launched");
    Group.run(() -> reduceOnBoth(values));
    assertArrayEquals(new int[] {2}, pair.download(0, values.get(0)), "no group is open");
    other.close();
    values.forEach(Buffer::close);
  }

  private void reduceOnBoth(List<Buffer> values) {
    for (int rank = 0; rank < 2; rank++) {
      Buffer value = values.get(rank);
      pair.rank(rank).allReduce(value, value, ReduceOp.SUM, pair.stream(rank));
    }
  }

  @Test
  void trap4LateWindowIsAwaited() {
    try (Pair late = new Pair(CONFIG.withBlocking(false))) {
      List<Buffer> buffers = late.registrable(DataType.INT32, PAGE_INTS);
      StandIn.pitfall(4);
      StandIn.hold(300);
      List<CompletionStage<Window>> stages = new ArrayList<>();
      long start = System.nanoTime();
      for (int rank = 0; rank < 2; rank++) {
        stages.add(late.nccl(rank).registerWindowAsync(buffers.get(rank), WindowOption.SYMMETRIC));
      }
      List<Window> windows = stages.stream().map(Pair::await).toList();
      assertTrue(System.nanoTime() - start >= 250_000_000, "it was in progress for 0.3 s");
      StandIn.hold(0);
      for (Window window : windows) {
        assertTrue(window.address() != 0);
        assertEquals(window.buffer().address(), window.userBuffer().address());
      }
      windows.forEach(Window::close);
      buffers.forEach(Buffer::close);
    }
  }

  @Test
  void trap4TimedOutWindowRetainsItsMemoryUntilAbort() {
    CommunicatorConfig shortTimeout =
        CONFIG.withBlocking(false).withTimeout(Duration.ofMillis(300));
    try (Pair late = new Pair(shortTimeout)) {
      List<Buffer> buffers = late.registrable(DataType.INT32, PAGE_INTS);
      StandIn.hold(-1);
      CompletionStage<Window> stage = late.nccl(0).registerWindowAsync(buffers.get(0));
      NcclException timeout = assertThrows(NcclException.class, () -> Pair.await(stage));
      assertEquals("ncclCommWindowRegister", timeout.function());
      assertThrows(IllegalStateException.class, () -> buffers.get(0).close());
      late.abort();
      buffers.forEach(Buffer::close);
    }
  }

  @Test
  void trap9NullWindowIsRefused() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    StandIn.windows(false);
    WindowsUnsupportedException unsupported =
        assertThrows(
            WindowsUnsupportedException.class,
            () -> pair.nccl(0).registerWindow(buffers.get(0), WindowOption.SYMMETRIC));
    assertTrue(
        unsupported.getMessage().contains("windows are not supported on " + pair.rank(0)),
        unsupported::toString);
    buffers.forEach(Buffer::close);
  }

  @Test
  void trap9MemoryOfOpenWindowCannotBeFreed() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    for (Buffer buffer : buffers) {
      IllegalStateException refused = assertThrows(IllegalStateException.class, buffer::close);
      assertTrue(refused.getMessage().contains("still uses its memory"), refused::toString);
    }
    windows.forEach(Window::close);
    buffers.forEach(Buffer::close);
    assertEquals(0, StandIn.calls("ncclMemFree"), "retained while two ranks are open");
    long allocated = StandIn.calls("ncclMemAlloc");
    pair.registrable(DataType.INT32, PAGE_INTS).forEach(Buffer::close);
    assertEquals(allocated, StandIn.calls("ncclMemAlloc"), "the memory is reused");
  }

  @Test
  void trap10OffsetsCountElementsOfTheRanksOwnWindow() {
    List<Buffer> doubles = pair.registrable(DataType.FLOAT64, 512);
    List<Window> windows = pair.register(doubles, WindowOption.SYMMETRIC);
    List<Buffer> plainWindow = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> asymmetric = pair.register(plainWindow);
    Buffer outside = pair.rank(0).newBuffer(DataType.FLOAT64, 1);
    Buffer source = doubles.get(0).slice(0, 1);
    source.copyFromAsync(MemorySegment.ofArray(new double[] {2.5}), pair.stream(0));
    assertPutRefused("this rank's own", source, windows.get(1));
    assertPutRefused("a symmetric one", source, asymmetric.get(0));
    assertPutRefused("must lie in a symmetric window", outside, windows.get(0));
    assertPutRefused("must lie in a symmetric window", plainWindow.get(0), windows.get(0));
    pair.nccl(0).putSignal(source, 1, windows.get(0), 3, pair.stream(0));
    pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 1)), pair.stream(1));
    double[] got = new double[4];
    doubles.get(1).slice(0, 4).copyTo(MemorySegment.ofArray(got), pair.stream(1));
    assertArrayEquals(new double[] {0, 0, 0, 2.5}, got);
    windows.forEach(Window::close);
    asymmetric.forEach(Window::close);
    outside.close();
    doubles.forEach(Buffer::close);
    plainWindow.forEach(Buffer::close);
  }

  private void assertPutRefused(String reason, Buffer source, Window window) {
    IllegalArgumentException refused =
        assertThrows(
            IllegalArgumentException.class,
            () -> pair.nccl(0).putSignal(source, 1, window, 0, pair.stream(0)));
    assertTrue(refused.getMessage().contains(reason), refused::toString);
    assertEquals(0, StandIn.calls("ncclPutSignal"));
  }

  @Test
  void trap11EstimateIsOfLastCollectiveAndLaunchesNothing() {
    List<Buffer> values = pair.registrable(DataType.INT32, PAGE_INTS);
    pair.upload(0, values.get(0), 1);
    Buffer large = pair.rank(0).newBuffer(DataType.INT32, 100 * PAGE_INTS);
    Optional<Duration> estimate =
        NcclBackend.of(pair.backend())
            .estimate(
                () -> {
                  pair.rank(0).allReduce(large, large, ReduceOp.SUM, pair.stream(0));
                  pair.rank(0)
                      .allReduce(values.get(0), values.get(0), ReduceOp.SUM, pair.stream(0));
                });
    // The stand-in's estimate for 4096 bytes: 10 us, plus 1 us for each 1024 bytes.
    assertEquals(Optional.of(Duration.ofNanos(14_000)), estimate);
    assertEquals(1, pair.download(0, values.get(0))[0], "nothing was launched");
    assertEquals(0, StandIn.calls("ncclGroupEnd"));
    large.close();
    values.forEach(Buffer::close);
  }

  @Test
  void trap11GroupsThatNcclWouldLaunchAreNotEstimated() {
    Buffer value = pair.rank(0).newBuffer(DataType.INT32, 1);
    assertEstimateRefused("it must contain a collective", () -> {});
    assertEstimateRefused(
        "a call that NCCL cannot estimate", () -> pair.rank(0).send(value, 1, pair.stream(0)));
    assertEstimateRefused(
        "a call that NCCL cannot estimate", () -> pair.nccl(0).signal(1, pair.stream(0)));
    try (Pair nonBlocking = new Pair(CONFIG.withBlocking(false))) {
      assertEstimateRefused(
          "of non-blocking Communicator[rank 0",
          () -> nonBlocking.rank(0).allReduce(value, value, ReduceOp.SUM, nonBlocking.stream(0)));
    }
    try (Communicator single =
        pair.backend().newCommunicator(pair.backend().newUniqueId(), 1, 0, CONFIG)) {
      assertEstimateRefused(
          "it is of one rank", () -> single.allReduce(value, value, ReduceOp.SUM, pair.stream(0)));
    }
    assertEstimateRefused(
        "operations of one group have no order",
        () -> {
          pair.rank(0).allReduce(value, value, ReduceOp.MAX, pair.stream(0));
          pair.rank(0).allReduce(value, value, ReduceOp.SUM, pair.stream(0));
        });
    assertEquals(0, StandIn.calls("ncclAllReduce") + StandIn.calls("ncclGroupSimulateEnd"));
    value.close();
  }

  private void assertEstimateRefused(String reason, Runnable group) {
    IllegalArgumentException refused =
        assertThrows(
            IllegalArgumentException.class, () -> NcclBackend.of(pair.backend()).estimate(group));
    assertTrue(refused.getMessage().contains(reason), refused::toString);
  }

  @Test
  void trap11FailedEstimateLeavesNoGroupOpen() {
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    Runnable group = () -> reduceOnBoth(values);
    for (String function : List.of("ncclAllReduce", "ncclGroupSimulateEnd", "ncclGroupStart")) {
      StandIn.fail(function, 3, 1);
      NcclException failure =
          assertThrows(
              NcclException.class, () -> NcclBackend.of(pair.backend()).estimate(group), function);
      assertEquals(function, failure.function());
    }
    RuntimeException thrown = new RuntimeException("thrown by the lambda");
    assertEquals(
        thrown,
        assertThrows(
            RuntimeException.class,
            () ->
                NcclBackend.of(pair.backend())
                    .estimate(
                        () -> {
                          throw thrown;
                        })));
    long before = StandIn.calls("ncclAllReduce");
    Group.run(group);
    assertEquals(before + 2, StandIn.calls("ncclAllReduce"));
    for (int rank = 0; rank < 2; rank++) {
      pair.stream(rank).synchronize();
    }
    values.forEach(Buffer::close);
  }

  @Test
  void trap15ParameterIsReadAsItsTypeOnly() {
    NcclParameters parameters = NcclBackend.of(pair.backend()).parameters();
    assertEquals(Byte.MIN_VALUE, parameters.int8("NCCL4J_STANDIN_I8"));
    assertEquals(Short.MIN_VALUE, parameters.int16("NCCL4J_STANDIN_I16"));
    assertEquals(Integer.MIN_VALUE, parameters.int32("NCCL4J_STANDIN_I32"));
    assertEquals(Long.MIN_VALUE, parameters.int64("NCCL4J_STANDIN_I64"));
    assertEquals(0xff, parameters.uint8("NCCL4J_STANDIN_U8"));
    assertEquals(0xffff, parameters.uint16("NCCL4J_STANDIN_U16"));
    assertEquals(0xffff_ffffL, parameters.uint32("NCCL4J_STANDIN_U32"));
    assertEquals("18446744073709551615", parameters.uint64("NCCL4J_STANDIN_U64").toString());
    IllegalArgumentException mismatch =
        assertThrows(IllegalArgumentException.class, () -> parameters.int64("NCCL4J_STANDIN_I32"));
    assertEquals(
        "key is NCCL4J_STANDIN_I32, a parameter of another type than int64_t;"
            + " NCCL returns it only as its own type",
        mismatch.getMessage());
    assertThrows(IllegalArgumentException.class, () -> parameters.string("NCCL4J_STANDIN_I32"));
    assertEquals("-2147483648", parameters.text("NCCL4J_STANDIN_I32"));
    assertArrayEquals(
        new byte[] {(byte) 0xff, (byte) 0xff}, parameters.bytes("NCCL4J_STANDIN_U16"));
  }

  @Test
  void trap15ParametersAreReadOneAtATime() throws InterruptedException {
    NcclParameters parameters = NcclBackend.of(pair.backend()).parameters();
    ConcurrentLinkedQueue<String> answers = new ConcurrentLinkedQueue<>();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      threads.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    for (int round = 0; round < 25; round++) {
                      answers.add(parameters.text("NCCL_DEBUG_TIMESTAMP_FORMAT"));
                      answers.add(parameters.string("NCCL_DEBUG_TIMESTAMP_FORMAT"));
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertEquals(200, answers.size());
    assertEquals(List.of("[%F %T] "), answers.stream().distinct().toList());
    assertEquals(0, StandIn.parameterOverlaps());
  }

  @Test
  void trap15UnknownKeyIsNamed() {
    NcclParameters parameters = NcclBackend.of(pair.backend()).parameters();
    for (Executable call :
        List.<Executable>of(
            () -> parameters.text("NCCL_DEBUGG"),
            () -> parameters.string("NCCL_DEBUGG"),
            () -> parameters.int32("NCCL_DEBUGG"),
            () -> parameters.bytes("NCCL_DEBUGG"))) {
      IllegalArgumentException missing = assertThrows(IllegalArgumentException.class, call);
      assertTrue(missing.getMessage().startsWith("key is NCCL_DEBUGG;"), missing::toString);
    }
    assertEquals(6, parameters.keys().size());
    assertTrue(parameters.keys().contains("NCCL_DEBUG"));
  }
}
