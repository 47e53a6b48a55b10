package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.NcclTimeoutException;
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
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Tests the last error that the CUDA runtime keeps for each thread: nccl4j's calls leave none of
 * their own to other code, and do not take another's.
 */
@OnStandIn
class LastErrorTest {
  private static final int COUNT = 1000;
  private static final Duration SHORT = Duration.ofMillis(50);

  /** A call for which CUDA answers cudaErrorNotReady at least once. */
  enum Call {
    IS_COMPLETE,
    SYNCHRONIZE,
    SYNCHRONIZE_TIMED_OUT,
    DOWNLOAD,
    EVENT_IS_COMPLETE,
    EVENT_SYNCHRONIZE_TIMED_OUT,
    CLOSE_BUFFER
  }

  private Pair pair;
  private Stream stream;
  private Event event;
  private Buffer first;
  private Buffer second;

  @BeforeEach
  void startCollectiveWithoutPeer() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    CudaDevices.use(0);
    pair = new Pair(CommunicatorConfig.defaults());
    stream = pair.stream(0);
    event = pair.rank(0).newEvent();
    first = pair.rank(0).newBuffer(DataType.INT32, COUNT);
    second = pair.rank(1).newBuffer(DataType.INT32, COUNT);
    pair.rank(0).allReduce(first, first, ReduceOp.SUM, stream);
    stream.record(event);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    pair.abort();
    pair.close();
    first.close();
    second.close();
    event.close();
    cudart_h.cudaGetLastError();
  }

  @ParameterizedTest
  @EnumSource
  void unfinishedWorkLeavesNoError(Call call) {
    make(call);
    assertEquals(0, cudart_h.cudaGetLastError());
  }

  @ParameterizedTest
  @EnumSource
  void errorOfOtherCodeStaysUnlessCudaReplacesIt(Call call) {
    StandIn.notReady(false);
    int error = causeError();
    make(call);
    assertEquals(error, cudart_h.cudaGetLastError());
  }

  @ParameterizedTest
  @EnumSource
  void replacedErrorOfOtherCodeLeavesNone(Call call) {
    causeError();
    make(call);
    assertEquals(0, cudart_h.cudaGetLastError());
  }

  @Test
  void errorOfOtherCodeSurvivesCompletedWork() {
    Pair.onOwnThread(this::joinCollective);
    stream.synchronize();
    int error = causeError();
    assertTrue(stream.isComplete());
    assertTrue(event.isComplete());
    stream.synchronize();
    event.synchronize(SHORT);
    assertEquals(error, cudart_h.cudaGetLastError());
  }

  @Test
  void failureThatIsThrownLeavesNoError() {
    StandIn.fail("cudaStreamQuery", cudart_h.cudaErrorLaunchFailure(), 1);
    assertThrows(CudaException.class, stream::isComplete);
    assertEquals(0, cudart_h.cudaGetLastError());
  }

  @Test
  void captureBesideTheLegacyStreamLeavesNoError() {
    try (Arena arena = Arena.ofConfined();
        Stream legacy = CudaStream.ofAddress(cudart_h.cudaStreamLegacy().address(), 0)) {
      MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
      assertEquals(0, cudart_h.cudaStreamCreateWithFlags(cell, 0));
      MemorySegment capturing = cell.get(ValueLayout.ADDRESS, 0);
      int mode = cudart_h.cudaStreamCaptureModeThreadLocal();
      assertEquals(0, cudart_h.cudaStreamBeginCapture(capturing, mode));
      assertThrows(IllegalStateException.class, legacy::isComplete);
      assertEquals(0, cudart_h.cudaGetLastError());
      assertEquals(0, cudart_h.cudaStreamEndCapture(capturing, cell));
      assertEquals(0, cudart_h.cudaGraphDestroy(cell.get(ValueLayout.ADDRESS, 0)));
      assertEquals(0, cudart_h.cudaStreamDestroy(capturing));
    }
  }

  /** Makes a call of other code fail. */
  private static int causeError() {
    int error = cudart_h.cudaStreamCreateWithFlags(MemorySegment.NULL, 0);
    assertEquals(cudart_h.cudaErrorInvalidValue(), error);
    assertEquals(error, cudart_h.cudaPeekAtLastError());
    return error;
  }

  private void make(Call call) {
    switch (call) {
      case IS_COMPLETE -> assertFalse(stream.isComplete());
      case SYNCHRONIZE -> {
        joinAfterQuery();
        stream.synchronize();
      }
      case SYNCHRONIZE_TIMED_OUT ->
          assertThrows(NcclTimeoutException.class, () -> stream.synchronize(SHORT));
      case DOWNLOAD -> {
        joinAfterQuery();
        first.copyTo(new int[COUNT], stream);
      }
      case EVENT_IS_COMPLETE -> assertFalse(event.isComplete());
      case EVENT_SYNCHRONIZE_TIMED_OUT ->
          assertThrows(NcclTimeoutException.class, () -> event.synchronize(SHORT));
      case CLOSE_BUFFER -> assertThrows(IllegalStateException.class, first::close);
    }
  }

  /** Lets the collective end once the stream or an event has been queried. */
  private void joinAfterQuery() {
    long queries = queries();
    Runnable join =
        () -> {
          while (queries() == queries) {
            Thread.onSpinWait();
          }
          joinCollective();
        };
    Thread.ofPlatform().daemon().start(join);
  }

  private static long queries() {
    return StandIn.calls("cudaStreamQuery") + StandIn.calls("cudaEventQuery");
  }

  private void joinCollective() {
    pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1));
  }
}
