package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.BufferRegistration;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.WaitSignal;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests NCCL's memory, registrations, windows and one-sided operations. */
@OnStandIn
class WindowTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(10));
  private static final int PAGE_INTS = 1024;

  private Pair pair;
  private long memoryBefore;

  @BeforeEach
  void open() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    memoryBefore = StandIn.live("memory");
    pair = new Pair(CONFIG);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    pair.close();
    assertEquals(0, StandIn.live("registration"));
    assertEquals(0, StandIn.live("window"));
    assertEquals(memoryBefore, StandIn.live("memory"));
  }

  @Test
  void registrableMemoryHasItsDeviceAndIsFreedOnce() {
    Buffer buffer = NcclBackend.of(pair.backend()).newRegistrableBuffer(1, DataType.FLOAT32, 10);
    assertEquals(1, buffer.device());
    assertEquals(10, buffer.count());
    assertEquals(0, buffer.address() % 4096);
    assertEquals(1, StandIn.calls("ncclMemAlloc"));
    assertEquals(memoryBefore + 1, StandIn.live("memory"));
    pair.rank(1).allReduce(buffer, buffer, ReduceOp.SUM, pair.stream(1));
    pair.stream(1).isComplete();
    assertRefused("device 0", () -> pair.rank(0).send(buffer, 1, pair.stream(0)));
    pair.abort();
    buffer.close();
    buffer.close();
    assertEquals(1, StandIn.calls("ncclMemFree"));
    try (Buffer empty =
        NcclBackend.of(pair.backend()).newRegistrableBuffer(0, DataType.FLOAT32, 0)) {
      assertEquals(0, empty.count());
    }
    assertEquals(1, StandIn.calls("ncclMemAlloc"), "an empty buffer allocates nothing");
    assertRefused(
        "device is 99",
        () -> NcclBackend.of(pair.backend()).newRegistrableBuffer(99, DataType.FLOAT32, 1));
  }

  @Test
  void registrableMemoryIsRefusedInCapture() {
    NcclBackend nccl = NcclBackend.of(pair.backend());
    IllegalStateException refused =
        assertThrows(
            IllegalStateException.class,
            () ->
                Graph.capture(
                    pair.stream(0), () -> nccl.newRegistrableBuffer(0, DataType.FLOAT32, 1)));
    assertTrue(refused.getMessage().contains("Graph.capture"), refused.getMessage());
    assertEquals(0, StandIn.calls("ncclMemAlloc"));
  }

  @Test
  void registeredBufferCannotBeClosed() {
    Buffer buffer = pair.rank(0).newBuffer(DataType.INT32, 100);
    BufferRegistration registration = pair.nccl(0).register(buffer.slice(10, 50));
    assertTrue(registration.isEffective());
    assertEquals(1, StandIn.live("registration"));
    assertEquals(buffer.address() + 40, registration.buffer().address());
    IllegalStateException refused = assertThrows(IllegalStateException.class, buffer::close);
    assertTrue(refused.getMessage().contains("a registration with " + pair.rank(0)));
    assertEquals(100, pair.download(0, buffer).length, "it is still open");
    registration.close();
    assertFalse(registration.isOpen());
    assertEquals(0, StandIn.live("registration"));
    registration.close();
    assertEquals(1, StandIn.calls("ncclCommDeregister"));
    buffer.close();
  }

  @Test
  void registrationIgnoredByNcclIsNotEffective() {
    try (Buffer pinned = pair.backend().newPinnedBuffer(DataType.INT32, 4);
        BufferRegistration registration = pair.nccl(0).register(pinned)) {
      assertFalse(registration.isEffective());
    }
    assertEquals(0, StandIn.calls("ncclCommDeregister"), "there is no handle to deregister");
  }

  @Test
  void windowCloseWaitsForItsClosingCommunicator() throws Exception {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers);
    Buffer first = buffers.get(0);
    Buffer second = buffers.get(1);
    pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
    CompletableFuture<Void> closing = Pair.startClosing(pair.rank(0));
    Window window = windows.get(0);
    CompletableFuture<Boolean> openWhenClosed =
        CompletableFuture.supplyAsync(
            () -> {
              window.close();
              return window.isOpen();
            });
    assertThrows(TimeoutException.class, () -> openWhenClosed.get(100, TimeUnit.MILLISECONDS));
    assertTrue(window.isOpen(), "its communicator waits for its stream");
    Thread.ofPlatform()
        .start(() -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)))
        .join();
    assertFalse(openWhenClosed.get(10, TimeUnit.SECONDS));
    Pair.await(closing);
    windows.get(1).close();
    buffers.forEach(Buffer::close);
  }

  @Test
  void communicatorCloseClosesItsRegistrations() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    BufferRegistration registration = pair.nccl(0).register(buffers.get(0));
    pair.rank(0).close();
    assertFalse(windows.get(0).isOpen());
    assertFalse(registration.isOpen());
    assertEquals(1, StandIn.calls("ncclCommWindowDeregister"));
    assertEquals(1, StandIn.calls("ncclCommDeregister"));
    buffers.get(0).close();
    windows.get(0).close();
    registration.close();
    assertThrows(IllegalStateException.class, () -> buffers.get(1).close());
    pair.rank(1).abort();
    assertFalse(windows.get(1).isOpen());
    buffers.get(1).close();
    assertEquals(1, StandIn.calls("ncclCommWindowDeregister"), "an abort frees the windows itself");
  }

  @Test
  void failedRegistrationDoesNotRetainItsBuffer() {
    Buffer buffer = pair.rank(0).newBuffer(DataType.INT32, 10);
    StandIn.fail("ncclCommRegister", 2, 1);
    NcclException refused = assertThrows(NcclException.class, () -> pair.nccl(0).register(buffer));
    assertEquals("ncclCommRegister", refused.function());
    buffer.close();
  }

  @Test
  void failedDeregistrationRetainsItsBuffer() {
    Buffer buffer = pair.rank(0).newBuffer(DataType.INT32, 10);
    BufferRegistration registration = pair.nccl(0).register(buffer);
    StandIn.fail("ncclCommDeregister", 3, 1);
    assertThrows(NcclException.class, registration::close);
    assertTrue(registration.isOpen());
    assertThrows(IllegalStateException.class, buffer::close);
    registration.close();
    buffer.close();
  }

  @Test
  void windowHasItsMemoryAndOptions() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows =
        pair.register(buffers, WindowOption.SYMMETRIC, WindowOption.STRICT_ORDERING);
    Window window = windows.get(1);
    assertEquals(pair.rank(1), window.communicator());
    assertEquals(Set.of(WindowOption.SYMMETRIC, WindowOption.STRICT_ORDERING), window.options());
    assertEquals(buffers.get(1).address(), window.userBuffer().address());
    assertEquals(buffers.get(0).address() + 4, window.peerAddress(0, 4).orElseThrow());
    assertEquals(buffers.get(1).address(), window.peerAddress(1, 0).orElseThrow());
    assertEquals(OptionalLong.empty(), window.multicastAddress(0));
    assertEquals(PAGE_INTS, window.userBuffer().count());
    assertEquals(2, StandIn.calls("ncclWinGetUserPtr"));
    assertTrue(window.address() != 0);
    windows.forEach(Window::close);
    IllegalStateException closed = assertThrows(IllegalStateException.class, window::userBuffer);
    assertTrue(closed.getMessage().startsWith("window is closed: Window["), closed::toString);
    buffers.forEach(Buffer::close);
  }

  @Test
  void memoryUnfitForWindowsIsRefusedBeforeTheCall() {
    Buffer plain = pair.rank(0).newBuffer(DataType.INT32, PAGE_INTS);
    Buffer pinned = pair.backend().newPinnedBuffer(DataType.INT32, PAGE_INTS);
    Buffer other =
        NcclBackend.of(pair.backend()).newRegistrableBuffer(1, DataType.INT32, PAGE_INTS);
    Buffer good =
        NcclBackend.of(pair.backend()).newRegistrableBuffer(0, DataType.INT32, 2 * PAGE_INTS);
    assertWindowRefused("newRegistrableBuffer", plain);
    assertWindowRefused("newRegistrableBuffer", plain.slice(0, 1));
    assertWindowRefused("newRegistrableBuffer", pinned);
    assertWindowRefused("must be usable on this rank's device", other);
    assertWindowRefused("count 0", good.slice(0, 0));
    assertWindowRefused("a multiple of 4096", good.slice(1, PAGE_INTS));
    assertEquals(0, StandIn.calls("ncclCommWindowRegister"));
    List.of(plain, pinned, other, good).forEach(Buffer::close);
  }

  private void assertWindowRefused(String reason, Buffer buffer) {
    assertRefused(reason, () -> pair.nccl(0).registerWindow(buffer, WindowOption.SYMMETRIC));
  }

  @Test
  void memoryIsInAtMostOneSymmetricWindow() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, 2 * PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    assertWindowRefused("in another symmetric window", buffers.get(0).slice(PAGE_INTS, 1));
    windows.forEach(Window::close);
    pair.register(buffers, WindowOption.SYMMETRIC).forEach(Window::close);
    buffers.forEach(Buffer::close);
  }

  @Test
  void windowRegisteredLateByPeerIsClosedWithCommunicator() {
    // It limits the close of rank 0, too, for which a busy machine may need seconds.
    CommunicatorConfig shortTimeout = CONFIG.withTimeout(Duration.ofSeconds(4));
    try (Pair two = new Pair(shortTimeout, CONFIG)) {
      List<Buffer> buffers = two.registrable(DataType.INT32, PAGE_INTS);
      NcclTimeoutException late =
          assertThrows(
              NcclTimeoutException.class,
              () -> two.nccl(0).registerWindow(buffers.get(0), WindowOption.SYMMETRIC));
      assertEquals("ncclCommWindowRegister", late.function());
      assertThrows(
          IllegalStateException.class,
          () -> buffers.get(0).close(),
          "NCCL may still register the memory");
      Window peers =
          Pair.await(two.nccl(1).registerWindowAsync(buffers.get(1), WindowOption.SYMMETRIC));
      awaitCallReturned(two.nccl(0));
      peers.close();
      two.rank(0).close();
      buffers.forEach(Buffer::close);
    }
  }

  /** Waits until the call that timed out has returned from NCCL. */
  private static void awaitCallReturned(NcclCommunicator comm) {
    long start = System.nanoTime();
    while (true) {
      try {
        comm.callNative("nothing", pointer -> nccl_h.ncclSuccess());
        return;
      } catch (IllegalStateException inUse) {
        assertTrue(System.nanoTime() - start < 20_000_000_000L, inUse::toString);
        Thread.onSpinWait();
      }
    }
  }

  @Test
  void putWritesToOffsetOfPeersWindow() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    pair.upload(0, buffers.get(0), 7, 8, 9);
    pair.nccl(0).putSignal(buffers.get(0).slice(0, 3), 1, windows.get(0), 100, pair.stream(0));
    pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 1)), pair.stream(1));
    int[] expected = new int[PAGE_INTS];
    expected[100] = 7;
    expected[101] = 8;
    expected[102] = 9;
    assertArrayEquals(expected, pair.download(1, buffers.get(1)));
    windows.forEach(Window::close);
    buffers.forEach(Buffer::close);
  }

  @Test
  void waitCompletesWithAllItsSignalsAndConsumesThem() {
    pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 2)), pair.stream(1));
    pair.nccl(0).signal(1, pair.stream(0));
    pair.stream(0).synchronize();
    assertFalse(pair.stream(1).isComplete());
    pair.nccl(0).signal(1, pair.stream(0));
    pair.stream(1).synchronize();
    pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 1)), pair.stream(1));
    assertFalse(pair.stream(1).isComplete(), "earlier signals are not counted twice");
    pair.nccl(0).signal(1, pair.stream(0));
    pair.stream(1).synchronize();
  }

  @Test
  void oneSidedOperationsOfGroupAreLaunchedAtItsEnd() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    for (int rank = 0; rank < 2; rank++) {
      pair.upload(rank, buffers.get(rank), 10 + rank);
    }
    Group.run(
        () -> {
          for (int rank = 0; rank < 2; rank++) {
            int peer = 1 - rank;
            pair.nccl(rank)
                .putSignal(
                    buffers.get(rank).slice(0, 1), peer, windows.get(rank), 5, pair.stream(rank));
            pair.nccl(rank).waitSignal(List.of(new WaitSignal(peer, 1)), pair.stream(rank));
          }
          assertEquals(0, StandIn.calls("ncclPutSignal"));
        });
    assertEquals(2, StandIn.calls("ncclPutSignal"));
    assertEquals(11, pair.download(0, buffers.get(0))[5]);
    assertEquals(10, pair.download(1, buffers.get(1))[5]);
    IllegalStateException closed =
        assertThrows(
            IllegalStateException.class,
            () ->
                Group.run(
                    () -> {
                      pair.nccl(0)
                          .putSignal(
                              buffers.get(0).slice(0, 1), 1, windows.get(0), 0, pair.stream(0));
                      windows.get(0).close();
                    }));
    assertTrue(closed.getMessage().startsWith("window is closed"), closed::toString);
    assertEquals(2, StandIn.calls("ncclPutSignal"), "nothing of the group was launched");
    windows.get(1).close();
    buffers.forEach(Buffer::close);
  }

  @Test
  void putOfMemoryWrittenByItsGroupIsRefused() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    Buffer source = buffers.get(0).slice(2, 3);
    Buffer summed = buffers.get(0).slice(4, 4);
    Communicator comm = pair.rank(0);
    String refused =
        assertThrows(
                IllegalArgumentException.class,
                () ->
                    Group.run(
                        () -> {
                          comm.allReduce(summed, summed, ReduceOp.SUM, pair.stream(0));
                          NcclCommunicator.of(comm)
                              .putSignal(source, 1, windows.get(0), 64, pair.stream(0));
                        }))
            .getMessage();
    for (String named :
        List.of("allReduce of " + comm, "putSignal of " + comm, "reads source, " + source)) {
      assertTrue(refused.contains(named), refused);
    }
    assertEquals(0, StandIn.calls("ncclPutSignal") + StandIn.calls("ncclAllReduce"));
    windows.forEach(Window::close);
    buffers.forEach(Buffer::close);
  }

  @Test
  void graphPutsAndWaitsAtEachLaunch() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    List<Graph> graphs =
        Graph.capture(
            List.of(pair.stream(0), pair.stream(1)),
            () -> {
              pair.nccl(0)
                  .putSignal(buffers.get(0).slice(0, 1), 1, windows.get(0), 1, pair.stream(0));
              pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 1)), pair.stream(1));
            });
    for (int value = 1; value <= 3; value++) {
      pair.upload(0, buffers.get(0), value);
      graphs.get(0).launch(pair.stream(0));
      graphs.get(1).launch(pair.stream(1));
      assertEquals(value, pair.download(1, buffers.get(1))[1]);
    }
    windows.get(0).close();
    assertThrows(IllegalStateException.class, () -> graphs.get(0).launch(pair.stream(0)));
    graphs.forEach(Graph::close);
    windows.get(1).close();
    buffers.forEach(Buffer::close);
  }

  @Test
  void invalidPutIsRefusedBeforeTheCall() {
    List<Buffer> buffers = pair.registrable(DataType.INT32, PAGE_INTS);
    List<Window> windows = pair.register(buffers, WindowOption.SYMMETRIC);
    Buffer source = buffers.get(0).slice(0, 24);
    Window window = windows.get(0);
    assertRefused("peer is 2; it must be from 0 to 1", () -> put(source, 2, window, 0));
    assertRefused("peer is -1", () -> put(source, -1, window, 0));
    assertRefused("offset is -1", () -> put(source, 1, window, -1));
    assertRefused("offset is 1001; 24 elements", () -> put(source, 1, window, 1001));
    assertRefused("offset is 4611686018427387904", () -> put(source, 1, window, 1L << 62));
    assertRefused("source has count 0", () -> put(source.slice(0, 0), 1, window, 0));
    assertThrows(NullPointerException.class, () -> put(source, 1, null, 0));
    assertRefused("stream is", () -> pair.nccl(0).putSignal(source, 1, window, 0, pair.stream(1)));
    assertEquals(0, StandIn.calls("ncclPutSignal"));
    put(source, 1, window, 1000);
    assertEquals(1, StandIn.calls("ncclPutSignal"), "the last offset at which it fits");
    pair.stream(0).synchronize();
    windows.forEach(Window::close);
    buffers.forEach(Buffer::close);
  }

  private void put(Buffer source, int peer, Window window, long offset) {
    pair.nccl(0).putSignal(source, peer, window, offset, pair.stream(0));
  }

  @Test
  void invalidWaitsAndSignalsAreRefusedBeforeTheCall() {
    assertRefused("count is 0; it must be 1 or more", () -> new WaitSignal(0, 0));
    assertRefused("peer is -1; it must be 0 or more", () -> new WaitSignal(-1, 1));
    assertRefused("signals is empty", () -> waitFor());
    assertRefused("peer is 2; it must be from 0 to 1", () -> waitFor(new WaitSignal(2, 1)));
    assertRefused(
        "signals names peer 1 twice", () -> waitFor(new WaitSignal(1, 1), new WaitSignal(1, 2)));
    assertRefused("peer is 2", () -> pair.nccl(0).signal(2, pair.stream(0)));
    assertEquals(0, StandIn.calls("ncclWaitSignal") + StandIn.calls("ncclSignal"));
  }

  private void waitFor(WaitSignal... signals) {
    pair.nccl(0).waitSignal(List.of(signals), pair.stream(0));
  }

  @Test
  void abortEndsWaitForMissingSignal() {
    pair.nccl(1).waitSignal(List.of(new WaitSignal(0, 1)), pair.stream(1));
    pair.rank(1).abort();
    assertThrows(CommunicatorAbortedException.class, () -> pair.stream(1).synchronize());
    pair.stream(1).synchronize();
  }

  @Test
  void failedRegistrationStageHasTheCause() {
    Buffer buffer =
        NcclBackend.of(pair.backend()).newRegistrableBuffer(0, DataType.INT32, PAGE_INTS);
    StandIn.fail("ncclCommWindowRegister", 2, 1);
    CompletionStage<Window> stage = pair.nccl(0).registerWindowAsync(buffer);
    NcclException failure = assertThrows(NcclException.class, () -> Pair.await(stage));
    assertEquals(2, failure.code());
    buffer.close();
  }

  private static void assertRefused(String reason, Executable call) {
    IllegalArgumentException refused = assertThrows(IllegalArgumentException.class, call);
    assertTrue(refused.getMessage().contains(reason), refused::toString);
  }
}
