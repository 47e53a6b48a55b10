package io.nccl4j.nccl;

import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.NullMarked;

/**
 * The effective values of NCCL's parameters, by the names of their environment variables and
 * wherever they were set. From NCCL 2.30.4 on; needs no GPU.
 *
 * <p>NCCL returns a parameter only as its own type, so there is a method for each type; {@link
 * #text} and {@link #bytes} accept any. NCCL exposes only few parameters through this interface so
 * far: {@link #keys} lists the documented ones, private ones can be queried by name, and plugins
 * may add more.
 *
 * <p>Thread-safe. NCCL does not synchronize its state here, so nccl4j serializes all calls of this
 * process; other code must not call these functions at the same time.
 *
 * <p>NCCL reads a variable once: set variables before the process starts, or by {@link
 * io.nccl4j.plugin.NcclEnvironment} before NCCL is loaded. {@code NCCL_NO_CACHE} lists variables
 * that NCCL reads again each time.
 */
@NullMarked
public final class NcclParameters {
  // Guards NCCL's parameter registry, which is per process and has no lock.
  private static final Object LOCK = new Object();
  private static final int MIN_CAPACITY = 64;
  private static final int MAX_CAPACITY = 1 << 20;

  /** One of NCCL's typed getters. */
  private interface Getter {
    int get(MemorySegment handle, MemorySegment value);
  }

  /** A C type of parameters: the name of its getter, and the conversion of the value. */
  private record Type<T>(
      String name, String suffix, Getter getter, Function<MemorySegment, T> read) {
    T of(String key) {
      synchronized (LOCK) {
        try (Arena arena = Arena.ofConfined()) {
          MemorySegment value = arena.allocate(ValueLayout.JAVA_LONG);
          int result = getter.get(bind(key, arena), value);
          if (result == NcclResult.INVALID_ARGUMENT.code()) {
            throw new IllegalArgumentException(
                "key is %s, a parameter of another type than %s; NCCL returns it only as its own type"
                    .formatted(key, name));
          }
          NcclResults.check(result, "ncclParamGet" + suffix);
          return read.apply(value);
        }
      }
    }
  }

  private static final Type<String> STRING =
      new Type<>(
          "const char *",
          "Str",
          nccl_h::ncclParamGetStr,
          at -> string(at.get(ValueLayout.ADDRESS, 0)));
  private static final Type<Byte> INT8 =
      new Type<>("int8_t", "I8", nccl_h::ncclParamGetI8, at -> at.get(ValueLayout.JAVA_BYTE, 0));
  private static final Type<Short> INT16 =
      new Type<>(
          "int16_t", "I16", nccl_h::ncclParamGetI16, at -> at.get(ValueLayout.JAVA_SHORT, 0));
  private static final Type<Integer> INT32 =
      new Type<>("int32_t", "I32", nccl_h::ncclParamGetI32, at -> at.get(ValueLayout.JAVA_INT, 0));
  private static final Type<Long> INT64 =
      new Type<>("int64_t", "I64", nccl_h::ncclParamGetI64, at -> at.get(ValueLayout.JAVA_LONG, 0));
  private static final Type<Integer> UINT8 =
      new Type<>(
          "uint8_t",
          "U8",
          nccl_h::ncclParamGetU8,
          at -> Byte.toUnsignedInt(at.get(ValueLayout.JAVA_BYTE, 0)));
  private static final Type<Integer> UINT16 =
      new Type<>(
          "uint16_t",
          "U16",
          nccl_h::ncclParamGetU16,
          at -> Short.toUnsignedInt(at.get(ValueLayout.JAVA_SHORT, 0)));
  private static final Type<Long> UINT32 =
      new Type<>(
          "uint32_t",
          "U32",
          nccl_h::ncclParamGetU32,
          at -> Integer.toUnsignedLong(at.get(ValueLayout.JAVA_INT, 0)));
  private static final Type<BigInteger> UINT64 =
      new Type<>(
          "uint64_t",
          "U64",
          nccl_h::ncclParamGetU64,
          at -> new BigInteger(Long.toUnsignedString(at.get(ValueLayout.JAVA_LONG, 0))));

  private NcclParameters() {}

  /**
   * {@return the parameters of this process's NCCL library} Loads the library if it is not loaded
   * yet.
   *
   * @throws LibraryNotFoundException if no usable {@code libnccl} is found
   * @throws UnsupportedNcclVersionException if NCCL is older than 2.30.4
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static NcclParameters load() {
    new NcclVersion(NativeLibrary.NCCL.load().version()).require("ncclParamGetParameter");
    return new NcclParameters();
  }

  /**
   * {@return the sorted names of the parameters that NCCL documents, or of all parameters if {@code
   * NCCL_PARAM_DUMP_ALL=1} is set} C: {@code ncclParamGetAllParameterKeys}.
   *
   * @throws NcclException if the library failed
   */
  public List<String> keys() {
    synchronized (LOCK) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment table = arena.allocate(ValueLayout.ADDRESS);
        MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
        NcclResults.check(
            nccl_h.ncclParamGetAllParameterKeys(table, length), "ncclParamGetAllParameterKeys");
        return strings(table.get(ValueLayout.ADDRESS, 0), length.get(ValueLayout.JAVA_INT, 0));
      }
    }
  }

  @SuppressWarnings("restricted") // NCCL has just returned the number of pointers.
  private static List<String> strings(MemorySegment table, int length) {
    MemorySegment pointers = table.reinterpret(length * ValueLayout.ADDRESS.byteSize());
    List<String> strings = new ArrayList<>();
    for (int i = 0; i < length; i++) {
      strings.add(string(pointers.getAtIndex(ValueLayout.ADDRESS, i)));
    }
    strings.sort(null);
    return List.copyOf(strings);
  }

  /**
   * {@return the value of a parameter of any type, as text} C: {@code ncclParamGetParameter}.
   *
   * @param key the name, such as {@code NCCL_DEBUG}
   * @throws IllegalArgumentException if NCCL has no such parameter
   * @throws NcclException if the library failed
   */
  public String text(String key) {
    synchronized (LOCK) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment value = arena.allocate(ValueLayout.ADDRESS);
        MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
        int result = nccl_h.ncclParamGetParameter(arena.allocateFrom(key), value, length);
        checkKnown(result, "ncclParamGetParameter", key);
        return string(value.get(ValueLayout.ADDRESS, 0));
      }
    }
  }

  /**
   * {@return the value of a parameter of the C type {@code const char *}, empty if not set} C:
   * {@code ncclParamBind}, {@code ncclParamGetStr}.
   *
   * @param key the name, such as {@code NCCL_DEBUG_FILE}
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public String string(String key) {
    return STRING.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code int8_t}} C: {@code ncclParamBind},
   * {@code ncclParamGetI8}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public byte int8(String key) {
    return INT8.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code int16_t}} C: {@code ncclParamBind},
   * {@code ncclParamGetI16}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public short int16(String key) {
    return INT16.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code int32_t}} C: {@code ncclParamBind},
   * {@code ncclParamGetI32}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public int int32(String key) {
    return INT32.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code int64_t}} C: {@code ncclParamBind},
   * {@code ncclParamGetI64}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public long int64(String key) {
    return INT64.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code uint8_t}, from 0 to 255} C: {@code
   * ncclParamBind}, {@code ncclParamGetU8}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public int uint8(String key) {
    return UINT8.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code uint16_t}, from 0 to 65535} C: {@code
   * ncclParamBind}, {@code ncclParamGetU16}.
   *
   * @param key the name
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public int uint16(String key) {
    return UINT16.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code uint32_t}, from 0 to 2^32 - 1} C: {@code
   * ncclParamBind}, {@code ncclParamGetU32}.
   *
   * @param key the name, such as {@code NCCL_DEBUG_TIMESTAMP_LEVELS}
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public long uint32(String key) {
    return UINT32.of(key);
  }

  /**
   * {@return the value of a parameter of the C type {@code uint64_t}, from 0 to 2^64 - 1} C: {@code
   * ncclParamBind}, {@code ncclParamGetU64}.
   *
   * @param key the name, such as {@code NCCL_DEBUG_SUBSYS}
   * @throws IllegalArgumentException if NCCL has no such parameter, or it has another type
   * @throws NcclException if the library failed
   */
  public BigInteger uint64(String key) {
    return UINT64.of(key);
  }

  /**
   * {@return the bytes of a parameter's value in native byte order; for a string, its characters
   * and a NUL} C: {@code ncclParamBind}, {@code ncclParamGet}.
   *
   * @param key the name, such as {@code NCCL_SET_THREAD_NAME}
   * @throws IllegalArgumentException if NCCL has no such parameter
   * @throws NcclException if the library failed
   */
  public byte[] bytes(String key) {
    synchronized (LOCK) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment handle = bind(key, arena);
        MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
        int capacity = MIN_CAPACITY;
        MemorySegment value = arena.allocate(capacity);
        int result = nccl_h.ncclParamGet(handle, value, capacity, length);
        // NCCL rejects a buffer that is too small as an invalid argument, without the needed size.
        while (result == NcclResult.INVALID_ARGUMENT.code() && capacity < MAX_CAPACITY) {
          capacity *= 2;
          value = arena.allocate(capacity);
          result = nccl_h.ncclParamGet(handle, value, capacity, length);
        }
        NcclResults.check(result, "ncclParamGet");
        return Arrays.copyOf(
            value.toArray(ValueLayout.JAVA_BYTE), length.get(ValueLayout.JAVA_INT, 0));
      }
    }
  }

  /**
   * Prints the parameters of {@link #keys} to the process's standard output, with their types,
   * values, origins and accepted values. The output bypasses Java's {@code System.out}; unless it
   * goes to a terminal, C buffers it. C: {@code ncclParamDumpAll}.
   */
  public void dump() {
    synchronized (LOCK) {
      nccl_h.ncclParamDumpAll();
    }
  }

  private static MemorySegment bind(String key, Arena arena) {
    MemorySegment handle = arena.allocate(ValueLayout.ADDRESS);
    checkKnown(nccl_h.ncclParamBind(handle, arena.allocateFrom(key)), "ncclParamBind", key);
    return handle.get(ValueLayout.ADDRESS, 0);
  }

  private static void checkKnown(int result, String function, String key) {
    if (result == NcclResult.INVALID_ARGUMENT.code()) {
      throw new IllegalArgumentException(
          "key is " + key + "; NCCL has no such parameter, or has not loaded its plugin yet");
    }
    NcclResults.check(result, function);
  }

  /** Copies a string that NCCL overwrites in this thread's next call. */
  @SuppressWarnings("restricted") // A C string has no known size; it ends at its NUL.
  private static String string(MemorySegment pointer) {
    return pointer.address() == 0 ? "" : pointer.reinterpret(Long.MAX_VALUE).getString(0);
  }
}
