package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.NativeLibrary;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.PrimaryContexts;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.Supplier;

/** Which CUDA device is current in this thread. Not for virtual threads. */
public final class CurrentDevice {
  private CurrentDevice() {}

  /** Returns how many devices there are. */
  public static int count() {
    NativeLibrary.CUDART.load();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
      int result = cudart_h.cudaGetDeviceCount(count);
      if (result == cudart_h.cudaErrorInsufficientDriver() && driverVersion() == 0) {
        // The runtime calls a driver that is absent one that is too old.
        throw CudaResults.failure(result, "cudaGetDeviceCount", "no NVIDIA driver is installed");
      }
      CudaResults.check(result, "cudaGetDeviceCount");
      return count.get(ValueLayout.JAVA_INT, 0);
    }
  }

  /** Returns the version of the newest CUDA that the driver can run, or 0 without a driver. */
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

  /** Makes a device current in this thread, for good. */
  public static void set(int device) {
    PlatformThreads.require("cudaSetDevice");
    NativeLibrary.CUDART.load();
    CudaResults.check(cudart_h.cudaSetDevice(device), "cudaSetDevice");
  }

  /**
   * Runs a call with a device current in this thread, and makes the former one current again if
   * anything uses it: making a device current that nothing uses would create a context there.
   */
  public static <T> T call(int device, Supplier<T> call) {
    int before = get();
    if (before == device) {
      return call.get();
    }
    set(device);
    boolean returned = false;
    try {
      T value = call.get();
      returned = true;
      return value;
    } finally {
      int result = PrimaryContexts.active(before) ? cudart_h.cudaSetDevice(before) : 0;
      // A failure to go back matters, but must not hide the call's own.
      if (returned) {
        CudaResults.check(result, "cudaSetDevice");
      }
    }
  }

  /** Runs a call as {@link #call} does, for its effect. */
  public static void run(int device, Runnable call) {
    call(
        device,
        () -> {
          call.run();
          return null;
        });
  }
}
