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
 * Calls libtorch's C functions. Functions of a tensor have the form {@code int32_t
 * f(AtenTensorHandle, RESULT *)}; a return value other than 0 is a failure. libtorch writes its
 * message to stderr, since it has no function that returns it.
 *
 * @see <a
 *     href="https://github.com/pytorch/pytorch/blob/main/torch/csrc/inductor/aoti_torch/c/shim.h">shim.h</a>
 */
@SuppressWarnings("restricted") // Calls native functions.
final class Shim {
  private static final FunctionDescriptor GET =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS);
  private static final FunctionDescriptor GET_OF_DEVICE =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT, ValueLayout.ADDRESS);
  private static final FunctionDescriptor CALL =
      FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG);
  private static final FunctionDescriptor CODE = FunctionDescriptor.of(ValueLayout.JAVA_INT);

  private final SymbolLookup symbols;
  private final String library;
  private final Map<String, MethodHandle> handles = new ConcurrentHashMap<>();
  private final Map<String, OptionalInt> codes = new ConcurrentHashMap<>();

  /**
   * @param symbols the library's symbols
   * @param library the library's name in messages
   */
  Shim(SymbolLookup symbols, String library) {
    this.symbols = symbols;
    this.library = library;
  }

  boolean has(String function) {
    return symbols.find(function).isPresent();
  }

  /** Returns a 32-bit property of a tensor. */
  int getInt(String function, long tensor) {
    return (int) getLong(function, tensor);
  }

  /** Returns a boolean property of a tensor. */
  boolean getBoolean(String function, long tensor) {
    return (byte) getLong(function, tensor) != 0;
  }

  /**
   * Returns a 64-bit property of a tensor, or an address. A narrower result is in the low bytes, as
   * this machine is little-endian.
   */
  long getLong(String function, long tensor) {
    MethodHandle handle = handle(function, GET);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(ValueLayout.JAVA_LONG);
      check((int) invoke(handle, tensor, result), function);
      return result.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** Returns a copy of an array property of a tensor, which libtorch owns. */
  long[] getArray(String function, long tensor, long length) {
    long address = getLong(function, tensor);
    return length == 0
        ? new long[0]
        : MemorySegment.ofAddress(address)
            .reinterpret(length * Long.BYTES)
            .toArray(ValueLayout.JAVA_LONG);
  }

  /** Returns a 64-bit property of a device, such as an address. */
  long getDeviceLong(String function, int device) {
    MethodHandle handle = handle(function, GET_OF_DEVICE);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(ValueLayout.JAVA_LONG);
      check((int) invoke(handle, device, result), function);
      return result.get(ValueLayout.JAVA_LONG, 0);
    }
  }

  /** Calls a function whose only argument is a tensor. */
  void call(String function, long tensor) {
    check((int) invoke(handle(function, CALL), tensor), function);
  }

  /** Returns the result of a function without arguments, if the library has the function. */
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
                        "%s has no function %s; it is too old or not libtorch. Use 2.4 or later"
                            .formatted(library, function)));
    return Linker.nativeLinker().downcallHandle(address, descriptor);
  }

  private void check(int result, String function) {
    if (result != 0) {
      throw new LibtorchException(
          function,
          "%s of %s returned %d; libtorch has written the reason to stderr"
              .formatted(function, library, result));
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
