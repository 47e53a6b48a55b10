package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.internal.ffm.PlatformThreads;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.Supplier;

/** The current CUDA device of the calling thread. Not for virtual threads. */
public final class CurrentDevice {
  private CurrentDevice() {}

  /** Returns the number of devices. */
  public static int count() {
    NativeLibrary.CUDART.load();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
      int result = cudart_h.cudaGetDeviceCount(count);
      if (result == cudart_h.cudaErrorInsufficientDriver() && driverVersion() == 0) {
        // The runtime reports a missing driver as one that is too old.
        throw CudaResults.failure(result, "cudaGetDeviceCount", "no NVIDIA driver is installed");
      }
      CudaResults.check(result, "cudaGetDeviceCount");
      return count.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /** Returns the newest CUDA version that the driver supports, or 0 without a driver. */
  public static int driverVersion() {
    NativeLibrary.CUDART.load();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
      CudaResults.check(cudart_h.cudaDriverGetVersion(version), "cudaDriverGetVersion");
      return version.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /** Returns this thread's current device. */
  public static int get() {
    PlatformThreads.require("cudaGetDevice");
    NativeLibrary.CUDART.load();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment device = arena.allocate(ValueLayout.JAVA_INT);
      CudaResults.check(cudart_h.cudaGetDevice(device), "cudaGetDevice");
      return device.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /** Makes a device this thread's current device. */
  public static void set(int device) {
    PlatformThreads.require("cudaSetDevice");
    NativeLibrary.CUDART.load();
    CudaResults.check(cudart_h.cudaSetDevice(device), "cudaSetDevice");
  }

  /**
   * Runs a call with a device as this thread's current device, and restores the previous one if
   * this process uses it. Restoring an unused device would create a context there.
   */
  public static <T> T call(int device, Supplier<T> call) {
    int previous = get();
    if (previous == device) {
      return call.get();
    }
    set(device);
    boolean returned = false;
    try {
      T value = call.get();
      returned = true;
      return value;
    } finally {
      int result = PrimaryContexts.active(previous) ? cudart_h.cudaSetDevice(previous) : 0;
      // A failure to restore the device must not hide a failure of the call.
      if (returned) {
        CudaResults.check(result, "cudaSetDevice");
      } else {
        CudaResults.forget(result);
      }
    }
  }

  /** Runs a call without a result like {@link #call}. */
  public static void run(int device, Runnable call) {
    call(
        device,
        () -> {
          call.run();
          return null;
        });
  }
}
