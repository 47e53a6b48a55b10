package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.Supplier;

/**
 * The stream capture mode of the calling thread. In the default mode, a call that is unsafe during
 * a capture, such as a query or an allocation, fails while any thread captures in global mode, as
 * frameworks do, and invalidates that capture. nccl4j's queries are never part of a capture, so it
 * makes them in relaxed mode.
 *
 * <p>Set the device first: changing the mode may create a context on the current device.
 */
public final class CaptureMode {
  private CaptureMode() {}

  /** Sets relaxed mode permanently. For nccl4j's own threads. */
  public static void relax() {
    exchange(cudart_h.cudaStreamCaptureModeRelaxed());
  }

  /** Runs a call in relaxed mode and restores the previous mode. */
  public static <T> T relaxed(Supplier<T> call) {
    int before = exchange(cudart_h.cudaStreamCaptureModeRelaxed());
    try {
      return call.get();
    } finally {
      exchange(before);
    }
  }

  private static int exchange(int mode) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment cell = arena.allocateFrom(ValueLayout.JAVA_INT, mode);
      CudaResults.check(
          cudart_h.cudaThreadExchangeStreamCaptureMode(cell),
          "cudaThreadExchangeStreamCaptureMode");
      return cell.get(ValueLayout.JAVA_INT, 0);
    }
  }
}
