package io.nccl4j.internal;

import io.nccl4j.bindings.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.Supplier;

/**
 * This thread's mode towards stream captures. In the default mode a call that is unsafe during a
 * capture, such as a query or an allocation, is refused while any thread captures in global mode,
 * as frameworks do, and invalidates that capture. What nccl4j asks is never part of a capture, so
 * its calls are made in relaxed mode.
 *
 * <p>The device must be current before: the exchange may create a context on whatever device is.
 */
public final class CaptureMode {
  private CaptureMode() {}

  /** Makes this thread relaxed for good; for threads of our own. */
  public static void relax() {
    exchange(cudart_h.cudaStreamCaptureModeRelaxed());
  }

  /** Runs a call in relaxed mode, and sets the mode back. */
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
