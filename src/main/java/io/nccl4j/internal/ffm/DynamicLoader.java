package io.nccl4j.internal.ffm;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * Calls the system's dynamic loader directly, because {@code System.load} reports neither the
 * loader's reason for a failure nor the path of the library found, and allows a library to one
 * class loader only.
 */
public final class DynamicLoader {
  private static final int RTLD_NOW = 2;
  private static final int RTLD_NOLOAD = 4;
  private static final StructLayout DL_INFO =
      MemoryLayout.structLayout(
          ValueLayout.ADDRESS.withName("dli_fname"),
          ValueLayout.ADDRESS.withName("dli_fbase"),
          ValueLayout.ADDRESS.withName("dli_sname"),
          ValueLayout.ADDRESS.withName("dli_saddr"));

  private static final MethodHandle DLOPEN =
      handle(
          "dlopen",
          FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_INT));
  private static final MethodHandle DLSYM =
      handle(
          "dlsym",
          FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  private static final MethodHandle DLERROR =
      handle("dlerror", FunctionDescriptor.of(ValueLayout.ADDRESS));
  private static final MethodHandle DLADDR =
      handle(
          "dladdr",
          FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS));

  private DynamicLoader() {}

  /** A failure of the dynamic loader, with its own message. */
  public static final class LoadException extends Exception {
    private static final long serialVersionUID = 1;

    LoadException(String reason) {
      super(reason);
    }
  }

  /** Opens a library by name or path and returns its handle. */
  public static MemorySegment open(String name) throws LoadException {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment handle = (MemorySegment) invoke(DLOPEN, arena.allocateFrom(name), RTLD_NOW);
      if (handle.address() == 0) {
        throw new LoadException(error());
      }
      return handle;
    }
  }

  /** Returns whether this process has loaded a library of that name, whoever loaded it. */
  static boolean loaded(String name) {
    try (Arena arena = Arena.ofConfined()) {
      int flags = RTLD_NOW | RTLD_NOLOAD;
      MemorySegment handle = (MemorySegment) invoke(DLOPEN, arena.allocateFrom(name), flags);
      return handle.address() != 0;
    }
  }

  /** Returns the address of a symbol of an open library. */
  public static MemorySegment symbol(MemorySegment library, String name) throws LoadException {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = (MemorySegment) invoke(DLSYM, library, arena.allocateFrom(name));
      if (address.address() == 0) {
        throw new LoadException(error());
      }
      return address;
    }
  }

  /** Returns a lookup of the symbols of an open library, which stays open. */
  static SymbolLookup lookup(MemorySegment library) {
    return name -> {
      try {
        return Optional.of(symbol(library, name));
      } catch (LoadException e) {
        return Optional.empty();
      }
    };
  }

  /** Returns the path of the file that an address was loaded from. */
  static String pathOf(MemorySegment address) throws LoadException {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment info = arena.allocate(DL_INFO);
      if ((int) invoke(DLADDR, address, info) == 0) {
        throw new LoadException(
            "dladdr knows no file for address 0x" + Long.toHexString(address.address()));
      }
      return string(info.get(ValueLayout.ADDRESS, 0));
    }
  }

  private static String error() {
    MemorySegment message = (MemorySegment) invoke(DLERROR);
    return message.address() == 0 ? "the loader gave no reason" : string(message);
  }

  @SuppressWarnings("restricted") // A C string has no known size; it ends at its NUL.
  private static String string(MemorySegment pointer) {
    return pointer.reinterpret(Long.MAX_VALUE).getString(0);
  }

  @SuppressWarnings("restricted") // The purpose of this class is to call the loader.
  private static MethodHandle handle(String name, FunctionDescriptor descriptor) {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(linker.defaultLookup().findOrThrow(name), descriptor);
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
