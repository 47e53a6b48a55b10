package io.nccl4j.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/**
 * Whether anything in this process uses a device yet: the state of its primary context, which the
 * CUDA runtime has no function to ask for and the driver has.
 *
 * @see <a
 *     href="https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PRIMARY__CTX.html">cuDevicePrimaryCtxGetState</a>
 */
public final class PrimaryContexts {
  private static final String DRIVER = "libcuda.so.1";
  private static final MethodHandle GET_STATE = getState();

  private PrimaryContexts() {}

  /** Returns whether a device is in use; true where there is no driver to ask. */
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

  @SuppressWarnings("restricted") // The one driver function that the runtime does not cover.
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
      // No driver, or the stand-in in its place: nothing is lost by going back to a device.
      return null;
    }
  }
}
