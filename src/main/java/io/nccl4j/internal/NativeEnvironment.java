package io.nccl4j.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * The environment as the C code of this process has it now. Java's is a copy from the start, which
 * lacks what was set since, by NCCL from its configuration files for one.
 */
public final class NativeEnvironment {
  private static final MethodHandle GETENV = getenv();

  private NativeEnvironment() {}

  /** {@return the value of a variable, if it is set} */
  public static Optional<String> get(String variable) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = (MemorySegment) GETENV.invokeExact(arena.allocateFrom(variable));
      return value.address() == 0 ? Optional.empty() : Optional.of(text(value));
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }

  @SuppressWarnings("restricted") // C says where the text ends.
  private static String text(MemorySegment value) {
    return value.reinterpret(Long.MAX_VALUE).getString(0);
  }

  @SuppressWarnings("restricted") // A C function that Java has no method for.
  private static MethodHandle getenv() {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(
        linker.defaultLookup().findOrThrow("getenv"),
        FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  }
}
