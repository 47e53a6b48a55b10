package io.nccl4j.internal;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/**
 * A memory barrier in every thread of the process at once, paid by whoever asks for it: the Linux
 * system call {@code membarrier}.
 *
 * <p>It lets the hot path write a flag with a plain store where it would otherwise need a full
 * fence at every call: the rare party, an abort, fences for both.
 */
public final class Membarrier {
  private static final Map<String, Long> SYSTEM_CALL_NUMBERS =
      Map.of("amd64", 324L, "aarch64", 283L);
  private static final int PRIVATE_EXPEDITED = 1 << 3;
  private static final int REGISTER_PRIVATE_EXPEDITED = 1 << 4;
  // Where the call is missing: far longer than any processor keeps a store to itself.
  private static final long DRAIN_NANOS = 10_000_000;

  private static final Long NUMBER = SYSTEM_CALL_NUMBERS.get(System.getProperty("os.arch"));
  private static final MethodHandle SYSCALL = syscall();
  private static final boolean AVAILABLE = NUMBER != null && call(REGISTER_PRIVATE_EXPEDITED) == 0;

  private Membarrier() {}

  /**
   * What any thread stored before this call began is seen by this thread when it returns, and the
   * other way round.
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

  @SuppressWarnings("restricted") // A system call that Java has no method for.
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
