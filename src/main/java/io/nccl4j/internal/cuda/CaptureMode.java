package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.Supplier;

/**
 * The stream capture mode of the calling thread. In the default mode, a call that is unsafe during
 * a capture fails while any thread captures in global mode, as frameworks do, or while this thread
 * captures another stream, and invalidates that capture. CUDA's documentation does not list these
 * calls; on a GPU, allocations, frees, queries, and the instantiation and destruction of an
 * executable graph were refused. nccl4j's are never part of a capture, so it makes them in relaxed
 * mode.
 */
public final class CaptureMode {
  private CaptureMode() {}

  /** Sets relaxed mode permanently. For nccl4j's own threads. */
  public static void relax() {
    exchange(cudart_h.cudaStreamCaptureModeRelaxed());
  }

  /** Runs a call in relaxed mode on a device, and restores the previous mode and device. */
  static <T> T relaxed(int device, Supplier<T> call) {
    // The device first: changing the mode may create a context on the current device.
    return CurrentDevice.call(
        device,
        () -> {
          int before = exchange(cudart_h.cudaStreamCaptureModeRelaxed());
          try {
            return call.get();
          } finally {
            exchange(before);
          }
        });
  }

  /** Runs a call without a result like {@link #relaxed}. */
  static void runRelaxed(int device, Runnable call) {
    relaxed(
        device,
        () -> {
          call.run();
          return null;
        });
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
