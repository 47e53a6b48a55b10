package io.nccl4j.plugin;

import io.nccl4j.internal.util.Loggers;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.logging.log4j.Logger;

/**
 * Functions in Java that NCCL calls. An exception that left one would end the process, so each
 * catches everything, logs its first failure, and returns success.
 */
final class Upcalls {
  /** A pointer of C to this many bytes. */
  static AddressLayout pointerTo(long bytes) {
    return pointerTo(MemoryLayout.sequenceLayout(bytes, ValueLayout.JAVA_BYTE));
  }

  /** A pointer of C to a pointer. */
  static final AddressLayout POINTER_TO_POINTER = pointerTo(ValueLayout.ADDRESS);

  /** A C string, which ends at its NUL. */
  static final AddressLayout TEXT = pointerTo(Long.MAX_VALUE);

  static final int SUCCESS = 0;

  private static final Logger LOG = Loggers.of(Upcalls.class);
  private static final Set<String> FAILED = ConcurrentHashMap.newKeySet();

  private Upcalls() {}

  @SuppressWarnings("restricted") // NCCL's interface gives the sizes.
  private static AddressLayout pointerTo(MemoryLayout target) {
    return ValueLayout.ADDRESS.withTargetLayout(target);
  }

  /**
   * Returns the address of a method as a C function, for the rest of the process.
   *
   * @param lookup may access the method
   * @param receiver the object whose method it is
   * @param method the method, which returns an int or an address
   */
  @SuppressWarnings("restricted") // NCCL's interface gives the signatures.
  static MemorySegment stub(
      MethodHandles.Lookup lookup, Object receiver, String method, FunctionDescriptor function) {
    MethodType type = function.toMethodType();
    String failed = type.returnType() == int.class ? "failed" : "failedWithNull";
    try {
      MethodHandle handler =
          MethodHandles.lookup()
              .findStatic(
                  Upcalls.class,
                  failed,
                  MethodType.methodType(type.returnType(), String.class, Throwable.class))
              .bindTo(receiver.getClass().getSimpleName() + "." + method);
      MethodHandle target = lookup.bind(receiver, method, type);
      return Linker.nativeLinker()
          .upcallStub(
              MethodHandles.catchException(target, Throwable.class, handler),
              function,
              Arena.global());
    } catch (NoSuchMethodException | IllegalAccessException e) {
      throw new LinkageError(method + type + " cannot be called", e);
    }
  }

  static int failed(String function, Throwable failure) {
    report(function, failure);
    return SUCCESS;
  }

  static MemorySegment failedWithNull(String function, Throwable failure) {
    report(function, failure);
    return MemorySegment.NULL;
  }

  /** Logs the first failure of a function. Never throws: not even if the logger does. */
  static void report(String function, Throwable failure) {
    try {
      if (FAILED.add(function)) {
        LOG.error(
            "{} failed, and NCCL continues without it; further failures are not logged",
            function,
            failure);
      }
    } catch (Throwable logger) {
      // There is nowhere to report it.
    }
  }

  /** Returns the text at a pointer; for a null pointer an empty one. */
  static String text(MemorySegment pointer) {
    return pointer.address() == 0 ? "" : pointer.getString(0);
  }
}
