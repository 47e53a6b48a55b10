package io.nccl4j.internal;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * Issues a memory barrier in every thread of the process with the Linux system call {@code
 * membarrier}. The calling thread bears the cost.
 *
 * <p>This lets the hot path write a flag with a plain store instead of a full fence in every call:
 * the rare side, an abort, fences for both.
 */
public final class Membarrier {
  private static final Map<String, Long> SYSTEM_CALL_NUMBERS =
      Map.of("amd64", 324L, "aarch64", 283L);
  private static final int PRIVATE_EXPEDITED = 1 << 3;
  private static final int REGISTER_PRIVATE_EXPEDITED = 1 << 4;
  // If the call is missing, wait far longer than any processor delays a store.
  private static final long DRAIN_NANOS = 10_000_000;

  private static final Long NUMBER = SYSTEM_CALL_NUMBERS.get(System.getProperty("os.arch"));
  private static final MethodHandle SYSCALL = syscall();
  private static final boolean AVAILABLE = NUMBER != null && call(REGISTER_PRIVATE_EXPEDITED) == 0;

  private Membarrier() {}

  /**
   * Issues the barrier. Stores of any thread before this call are visible to this thread when it
   * returns, and stores of this thread before the call are visible to the others.
   */
  public static void run() {
    if (!AVAILABLE || call(PRIVATE_EXPEDITED) != 0) {
      LockSupport.parkNanos(DRAIN_NANOS);
    }
  }

  private static long call(int command) {
    try {
      return (long) SYSCALL.invokeExact((long) NUMBER, command, 0, 0);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }

  @SuppressWarnings("restricted") // Java has no method for this system call.
  private static MethodHandle syscall() {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(
        linker.defaultLookup().findOrThrow("syscall"),
        FunctionDescriptor.of(
            ValueLayout.JAVA_LONG,
            ValueLayout.JAVA_LONG,
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_INT),
        Linker.Option.firstVariadicArg(1));
  }
}
