package io.nccl4j.internal.cuda;

import io.nccl4j.internal.ffm.DynamicLoader;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/**
 * Queries whether this process uses a device: the state of the device's primary context. The CUDA
 * driver has a function for that, the runtime has none.
 *
 * @see <a
 *     href="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PRIMARY__CTX.html">cuDevicePrimaryCtxGetState</a>
 */
public final class PrimaryContexts {
  private static final String DRIVER = "libcuda.so.1";
  private static final MethodHandle GET_STATE = getState();

  private PrimaryContexts() {}

  /** Returns whether this process uses a device; true if there is no driver to query. */
  public static boolean active(int device) {
    if (GET_STATE == null) {
      return true;
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment flags = arena.allocate(ValueLayout.JAVA_INT);
      MemorySegment active = arena.allocate(ValueLayout.JAVA_INT);
      int result = (int) GET_STATE.invokeExact(device, flags, active);
      return result != 0 || active.get(ValueLayout.JAVA_INT, 0) != 0;
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }

  @SuppressWarnings("restricted") // A driver function that the runtime does not have.
  private static MethodHandle getState() {
    try {
      MemorySegment function =
          DynamicLoader.symbol(DynamicLoader.open(DRIVER), "cuDevicePrimaryCtxGetState");
      return Linker.nativeLinker()
          .downcallHandle(
              function,
              FunctionDescriptor.of(
                  ValueLayout.JAVA_INT,
                  ValueLayout.JAVA_INT,
                  ValueLayout.ADDRESS,
                  ValueLayout.ADDRESS));
    } catch (DynamicLoader.LoadException e) {
      // No driver, or the stand-in libraries: restoring a device costs nothing then.
      return null;
    }
  }
}
