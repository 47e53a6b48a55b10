package io.nccl4j.internal.ffm;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * The current environment of this process's C code. Java's copy dates from the start of the process
 * and lacks later changes, such as the variables that NCCL sets from its configuration files.
 */
public final class NativeEnvironment {
  private static final MethodHandle GETENV = getenv();

  private NativeEnvironment() {}

  /** {@return the value of a variable, if it is set} */
  public static Optional<String> get(String variable) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = (MemorySegment) GETENV.invokeExact(arena.allocateFrom(variable));
      return value.address() == 0 ? Optional.empty() : Optional.of(string(value));
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }

  @SuppressWarnings("restricted") // A C string has no known size; it ends at its NUL.
  private static String string(MemorySegment value) {
    return value.reinterpret(Long.MAX_VALUE).getString(0);
  }

  @SuppressWarnings("restricted") // Java has no method for this C function.
  private static MethodHandle getenv() {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(
        linker.defaultLookup().findOrThrow("getenv"),
        FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  }
}
