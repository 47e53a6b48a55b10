package io.nccl4j.internal.ffm;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * The current environment of this process's C code. Java's copy dates from its first use and lacks
 * later changes, such as the variables that NCCL sets from its configuration files.
 */
public final class NativeEnvironment {
  private static final MethodHandle GETENV =
      handle("getenv", FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS));

  private NativeEnvironment() {}

  /** {@return the value of a variable, if it is set} */
  public static Optional<String> get(String variable) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = find(arena.allocateFrom(variable));
      return value.address() == 0 ? Optional.empty() : Optional.of(string(value));
    }
  }

  /** {@return the C string that is the value of a variable, or NULL} */
  public static MemorySegment find(MemorySegment variable) {
    try {
      return (MemorySegment) GETENV.invokeExact(variable);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }

  /**
   * Sets a variable for C code, and for the processes that this one starts; {@link System#getenv}
   * does not see it once it has been used. Not safe while another thread of this process reads or
   * sets a variable, which C code may do at any time. So it is called only right before NCCL is
   * used for the first time: NCCL itself sets the variables of its configuration files then.
   *
   * @throws IllegalArgumentException if the name is empty or contains {@code =}
   */
  public static void set(String variable, String value) {
    MethodHandle setenv =
        handle(
            "setenv",
            FunctionDescriptor.of(
                ValueLayout.JAVA_INT,
                ValueLayout.ADDRESS,
                ValueLayout.ADDRESS,
                ValueLayout.JAVA_INT));
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment name = arena.allocateFrom(variable);
      if ((int) setenv.invokeExact(name, arena.allocateFrom(value), 1) != 0) {
        throw new IllegalArgumentException(
            "variable is \"" + variable + "\"; it must not be empty or contain =");
      }
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

  @SuppressWarnings("restricted") // Java has no method for these C functions.
  private static MethodHandle handle(String function, FunctionDescriptor type) {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(linker.defaultLookup().findOrThrow(function), type);
  }
}
