package io.nccl4j.libtorch;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Calls of libtorch's C functions. All that take a tensor are {@code int32_t f(AtenTensorHandle,
 * RESULT *)}; a result other than 0 means failure, whose text libtorch has written to stderr, since
 * it has no function that would return it.
 *
 * @see <a
 *     href="https://github.com/pytorch/pytorch/blob/main/torch/csrc/inductor/aoti_torch/c/shim.h">shim.h</a>
 */
@SuppressWarnings("restricted") // Calling native functions is what this class is for.
final class Shim {
  private static final FunctionDescriptor ASK =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS);
  private static final FunctionDescriptor ASK_OF_DEVICE =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.ADDRESS);
  private static final FunctionDescriptor TELL =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG);
  private static final FunctionDescriptor CODE = FunctionDescriptor.of(ValueLayout.JAVA_INT);

  private final SymbolLookup symbols;
  private final String where;
  private final Map<String, MethodHandle> handles = new ConcurrentHashMap<>();
  private final Map<String, OptionalInt> codes = new ConcurrentHashMap<>();

  /**
   * @param symbols the library's
   * @param where the library, for messages
   */
  Shim(SymbolLookup symbols, String where) {
    this.symbols = symbols;
    this.where = where;
  }

  boolean has(String function) {
    return symbols.find(function).isPresent();
  }

  /** Returns a 32-bit answer about a tensor. */
  int askInt(String function, long tensor) {
    return (int) askLong(function, tensor);
  }

  /** Returns a truth about a tensor. */
  boolean askTruth(String function, long tensor) {
    return (byte) askLong(function, tensor) != 0;
  }

  /**
   * Returns a 64-bit answer about a tensor, or an address. A narrower answer is in the low bytes,
   * as this machine is little-endian.
   */
  long askLong(String function, long tensor) {
    MethodHandle handle = handle(function, ASK);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_LONG);
      check((int) invoke(handle, tensor, answer), function);
      return answer.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** Returns an array about a tensor, which libtorch owns. */
  long[] askArray(String function, long tensor, long length) {
    long address = askLong(function, tensor);
    return length == 0
        ? new long[0]
        : MemorySegment.ofAddress(address)
            .reinterpret(length * Long.BYTES)
            .toArray(ValueLayout.JAVA_LONG);
  }

  /** Returns an address that belongs to a device. */
  long askOfDevice(String function, int device) {
    MethodHandle handle = handle(function, ASK_OF_DEVICE);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_LONG);
      check((int) invoke(handle, device, answer), function);
      return answer.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** Calls a function that only takes a tensor. */
  void describe(String function, long tensor) {
    check((int) invoke(handle(function, TELL), tensor), function);
  }

  /** Returns what a function without arguments gives, if the library has it. */
  OptionalInt code(String function) {
    return codes.computeIfAbsent(
        function,
        name -> has(name) ? OptionalInt.of((int) invoke(handle(name, CODE))) : OptionalInt.empty());
  }

  private MethodHandle handle(String function, FunctionDescriptor descriptor) {
    return handles.computeIfAbsent(function, name -> link(name, descriptor));
  }

  private MethodHandle link(String function, FunctionDescriptor descriptor) {
    MemorySegment address =
        symbols
            .find(function)
            .orElseThrow(
                () ->
                    new LibtorchException(
                        function,
                        "%s has no function %s; it is too old, or no libtorch: 2.4 or later is needed"
                            .formatted(where, function)));
    return Linker.nativeLinker().downcallHandle(address, descriptor);
  }

  private void check(int result, String function) {
    if (result != 0) {
      throw new LibtorchException(
          function,
          "%s of %s answered %d; libtorch has written why to stderr"
              .formatted(function, where, result));
    }
  }

  private static Object invoke(MethodHandle handle, Object... arguments) {
    try {
      return handle.invokeWithArguments(arguments);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new AssertionError("a downcall throws no checked exception", e);
    }
  }
}
