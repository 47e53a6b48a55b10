package io.nccl4j.ffm;

import io.nccl4j.bindings.nccl.ncclConfig_t;
import io.nccl4j.fixtures.libraries.Requirement;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/** Controls the stand-in; see {@code src/test/native/README.md}. */
@SuppressWarnings("restricted") // The stand-in is called without nccl4j.
final class StandIn {
  private static final SymbolLookup SYMBOLS =
      SymbolLookup.libraryLookup(Requirement.library("nccl"), Arena.global());

  private StandIn() {}

  /** Makes the nth call of a function from now on return a result; 0: every call. */
  static void fail(String function, int result, int nth) {
    check(
        function,
        (int)
            call(
                "nccl4j_standin_fail",
                FunctionDescriptor.of(
                    ValueLayout.JAVA_INT,
                    ValueLayout.ADDRESS,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_INT),
                Arena.global().allocateFrom(function),
                result,
                nth));
  }

  /** Gives a stream a sticky error. */
  static void failStream(long stream, int error) {
    check(
        "stream",
        (int)
            call(
                "nccl4j_standin_fail_stream",
                FunctionDescriptor.of(
                    ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.JAVA_INT),
                MemorySegment.ofAddress(stream),
                error));
  }

  /** Gives a rank of a communicator an asynchronous error; its peers then wait until they abort. */
  static void failRank(MemorySegment communicator, int rank, int error) {
    check(
        "rank",
        (int)
            call(
                "nccl4j_standin_rank_fails",
                FunctionDescriptor.of(
                    ValueLayout.JAVA_INT,
                    ValueLayout.ADDRESS,
                    ValueLayout.JAVA_INT,
                    ValueLayout.JAVA_INT),
                communicator,
                rank,
                error));
  }

  /** Returns the number of calls of a function since the start or the last reset. */
  static long calls(String function) {
    return (long)
        call(
            "nccl4j_standin_calls",
            FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.ADDRESS),
            Arena.global().allocateFrom(function));
  }

  /** Returns the number of objects of a kind that have not been freed. */
  static long live(String kind) {
    return (long)
        call(
            "nccl4j_standin_live",
            FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.ADDRESS),
            Arena.global().allocateFrom(kind));
  }

  /** Returns whether a device's primary context was created since the last reset. */
  static boolean hasContext(int device) {
    int answer =
        (int)
            call(
                "nccl4j_standin_context",
                FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT),
                device);
    if (answer < 0) {
      throw new IllegalArgumentException("the stand-in has no device " + device);
    }
    return answer == 1;
  }

  /** Sets the memory size of each device in bytes. */
  static void setMemory(long bytes) {
    call("nccl4j_standin_set_memory", FunctionDescriptor.ofVoid(ValueLayout.JAVA_LONG), bytes);
  }

  /** Enables the emulation of one of NCCL's pitfalls. */
  static void pitfall(int number) {
    check(
        "pitfall " + number,
        (int)
            call(
                "nccl4j_standin_pitfall",
                FunctionDescriptor.of(
                    ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.JAVA_INT),
                number,
                1));
  }

  /**
   * Keeps operations of non-blocking communicators in progress for a time; -1: until abort; 0: off,
   * which ends what is held, too, if it stays off.
   */
  static void hold(int milliseconds) {
    call("nccl4j_standin_hold", FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT), milliseconds);
  }

  /** Returns a copy of the last {@code ncclConfig_t} passed to the stand-in. */
  static MemorySegment lastConfig() {
    MemorySegment struct = ncclConfig_t.allocate(Arena.ofAuto());
    call("nccl4j_standin_last_config", FunctionDescriptor.ofVoid(ValueLayout.ADDRESS), struct);
    return struct;
  }

  /** Sets how much work a stream takes before a call that enqueues more blocks; 0: any amount. */
  static void queue(int length) {
    call("nccl4j_standin_queue", FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT), length);
  }

  /** Sets whether a query that returns {@code cudaErrorNotReady} sets the thread's last error. */
  static void notReady(boolean recorded) {
    call(
        "nccl4j_standin_not_ready",
        FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT),
        recorded ? 1 : 0);
  }

  /** Sets whether communicators support windows. */
  static void windows(boolean supported) {
    call(
        "nccl4j_standin_windows",
        FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT),
        supported ? 1 : 0);
  }

  /**
   * Sets whether first operations connect inside the call, as NCCL's do unless {@code
   * NCCL_RUNTIME_CONNECT} is 0; true after a reset.
   */
  static void connect(boolean inCalls) {
    call(
        "nccl4j_standin_connect", FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT), inCalls ? 1 : 0);
  }

  /** Sets the stack size in bytes that an initialisation needs. */
  static void initStack(int bytes) {
    call("nccl4j_standin_init_stack", FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT), bytes);
  }

  /** Returns how often two threads used the unlocked state of the parameters at once. */
  static long parameterOverlaps() {
    return (long)
        call("nccl4j_standin_param_overlaps", FunctionDescriptor.of(ValueLayout.JAVA_LONG));
  }

  /** Sets a variable of the C environment, or unsets it if the value is null. */
  static void setEnvironment(String name, String value) {
    Linker linker = Linker.nativeLinker();
    FunctionDescriptor set =
        FunctionDescriptor.of(
            ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_INT);
    FunctionDescriptor unset = FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment variable = arena.allocateFrom(name);
      int result =
          value == null
              ? (int) libc(linker, "unsetenv", unset).invokeExact(variable)
              : (int)
                  libc(linker, "setenv", set).invokeExact(variable, arena.allocateFrom(value), 1);
      check("variable " + name, result);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  private static MethodHandle libc(Linker linker, String function, FunctionDescriptor type) {
    return linker.downcallHandle(linker.defaultLookup().findOrThrow(function), type);
  }

  /** Restores the settings of the environment and clears the counts; live objects stay. */
  static void reset() {
    call("nccl4j_standin_reset", FunctionDescriptor.ofVoid());
  }

  private static void check(String what, int answer) {
    if (answer != 0) {
      throw new IllegalArgumentException("the stand-in knows no " + what);
    }
  }

  private static Object call(String function, FunctionDescriptor type, Object... arguments) {
    try {
      MethodHandle handle =
          Linker.nativeLinker().downcallHandle(SYMBOLS.findOrThrow(function), type);
      return handle.invokeWithArguments(arguments);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }
}
