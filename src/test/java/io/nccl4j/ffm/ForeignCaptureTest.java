package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Tests calls that wait for a stream, or query it, while other code captures the stream: they are
 * refused, the capture stays valid, and no memory is released that pending work uses. Nor is it
 * when a query fails for a reason that does not end the work.
 */
@OnStandIn
class ForeignCaptureTest {
  private static final int COUNT = 1000;
  private static final int MODES = 3;

  /** A call that needs the state of the stream. */
  enum Call {
    IS_COMPLETE,
    SYNCHRONIZE,
    COMPLETION,
    UPLOAD,
    DOWNLOAD,
    CLOSE_STREAM,
    CLOSE_BUFFER,
    CLOSE_BUFFER_OF_COLLECTIVE,
    NEW_GROW_ID,
    CLOSE_COMMUNICATOR
  }

  private Pair pair;
  private Communicator single;
  private Buffer reduced;
  private Stream stuck;
  private MemorySegment raw;
  private Stream wrapped;
  private Buffer filled;
  private Buffer summed;
  private final List<MemorySegment> allocated = new ArrayList<>();
  private final List<MemorySegment> released = new ArrayList<>();

  @BeforeEach
  void enqueuePendingWork() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    CudaDevices.use(0);
    pair = new Pair(CommunicatorConfig.defaults());
    single = pair.backend().newCommunicators(0).getFirst();
    stuck = pair.stream(0);
    reduced = pair.rank(0).newBuffer(DataType.INT32, COUNT);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
      check(cudart_h.cudaStreamCreateWithFlags(cell, cudart_h.cudaStreamNonBlocking()));
      raw = cell.get(ValueLayout.ADDRESS, 0);
      wrapped = CudaStream.ofAddress(raw.address(), 0);
      filled = memory(arena);
      summed = memory(arena);
      // The framework's stream waits for a collective that does not end, and then has a copy.
      pair.rank(0).allReduce(reduced, reduced, ReduceOp.SUM, stuck);
      check(cudart_h.cudaEventCreateWithFlags(cell, cudart_h.cudaEventDisableTiming()));
      MemorySegment event = cell.get(ValueLayout.ADDRESS, 0);
      check(cudart_h.cudaEventRecord(event, CudaStream.of(stuck).pointer()));
      check(cudart_h.cudaStreamWaitEvent(raw, event, cudart_h.cudaEventWaitDefault()));
      check(cudart_h.cudaEventDestroy(event));
    }
    filled.fill((byte) 1, wrapped);
  }

  private Buffer memory(Arena arena) {
    MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
    check(cudart_h.cudaMalloc(cell, COUNT * Integer.BYTES));
    MemorySegment memory = cell.get(ValueLayout.ADDRESS, 0);
    allocated.add(memory);
    return Buffer.ofDeviceAddress(
        memory.address(), DataType.INT32, COUNT, 0, () -> released.add(memory));
  }

  @AfterEach
  void end() {
    StandIn.reset();
    pair.abort();
    single.abort();
    wrapped.close();
    pair.close();
    List.of(filled, summed, reduced).forEach(Buffer::close);
    assertEquals(Set.copyOf(allocated), Set.copyOf(released));
    allocated.forEach(memory -> check(cudart_h.cudaFree(memory)));
    check(cudart_h.cudaStreamDestroy(raw));
  }

  static java.util.stream.Stream<Arguments> callsInEachMode() {
    return java.util.stream.Stream.of(Call.values())
        .flatMap(
            call ->
                java.util.stream.IntStream.range(0, MODES)
                    .mapToObj(mode -> Arguments.of(call, mode)));
  }

  @ParameterizedTest
  @MethodSource("callsInEachMode")
  void callDuringTheCaptureIsRefusedAndLeavesItValid(Call call, int mode) {
    single.allReduce(summed, summed, ReduceOp.SUM, wrapped);
    check(cudart_h.cudaStreamBeginCapture(raw, mode));
    IllegalStateException refused = assertThrows(IllegalStateException.class, () -> make(call));
    assertTrue(refused.getMessage().contains("captur"), refused::getMessage);
    assertEquals(List.of(), released);
    assertTrue(single.isOpen(), "a refused call aborted the communicator");
    assertEquals(0, endCapture());
    assertEquals(cudart_h.cudaErrorNotReady(), cudart_h.cudaStreamQuery(raw));
  }

  @ParameterizedTest
  @CsvSource({
    "214, true", "220, true", "700, true", "719, true", "721, true", "911, true",
    "400, false", "801, false", "900, false", "901, false", "906, false", "908, false",
    "999, false"
  })
  void failedQueryEndsTheUseOfMemoryOnlyIfTheDeviceIsBroken(int error, boolean broken) {
    single.allReduce(summed, summed, ReduceOp.SUM, wrapped);
    StandIn.fail("cudaStreamQuery", error, 0);
    if (broken) {
      summed.close();
      assertEquals(1, released.size());
    } else {
      assertThrows(IllegalStateException.class, summed::close);
      assertEquals(List.of(), released);
    }
  }

  private void make(Call call) {
    switch (call) {
      case IS_COMPLETE -> wrapped.isComplete();
      case SYNCHRONIZE -> wrapped.synchronize(Duration.ofSeconds(20));
      case COMPLETION -> wrapped.completion();
      case UPLOAD -> filled.copyFromAsync(new int[COUNT], wrapped);
      case DOWNLOAD -> filled.copyTo(new int[COUNT], wrapped);
      case CLOSE_STREAM -> wrapped.close();
      case CLOSE_BUFFER -> filled.close();
      case CLOSE_BUFFER_OF_COLLECTIVE -> summed.close();
      case NEW_GROW_ID -> single.newGrowId();
      case CLOSE_COMMUNICATOR -> single.close();
    }
  }

  private int endCapture() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment graph = arena.allocate(ValueLayout.ADDRESS);
      int result = cudart_h.cudaStreamEndCapture(raw, graph);
      if (result == 0) {
        check(cudart_h.cudaGraphDestroy(graph.get(ValueLayout.ADDRESS, 0)));
      }
      return result;
    }
  }

  private static void check(int result) {
    assertEquals(0, result);
  }
}
