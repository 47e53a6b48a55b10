package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Objects;

/** The memory of direct buffers of {@code java.nio}, as far as it can be a {@link Buffer}'s. */
final class DirectMemory {
  private DirectMemory() {}

  /** Returns the memory from position to limit, which it keeps alive. */
  static MemorySegment of(java.nio.Buffer memory, DataType type) {
    Objects.requireNonNull(memory, "memory");
    Objects.requireNonNull(type, "type");
    Elements elements = Elements.of(memory);
    if (!memory.isDirect()) {
      throw new IllegalArgumentException(
          "memory is a " + elements.kind + " on the Java heap; it must be direct");
    }
    // The bytes of a ByteBuffer are taken as they lie, in whichever order it would read them.
    if (!(memory instanceof ByteBuffer)) {
      check(elements, type);
    }
    MemorySegment segment = MemorySegment.ofBuffer(memory);
    if (segment.byteSize() % type.bytes() != 0) {
      throw new IllegalArgumentException(
          "memory has "
              + segment.byteSize()
              + " bytes left; that must be a multiple of "
              + type.bytes()
              + ", the size of "
              + type);
    }
    return segment;
  }

  private static void check(Elements elements, DataType type) {
    if (!elements.are(type)) {
      throw new IllegalArgumentException(
          "type is " + type + "; the elements of a " + elements.kind + " are of another");
    }
    if (elements.order != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException(
          "memory is in the order "
              + elements.order
              + "; it must be in this machine's, "
              + ByteOrder.nativeOrder());
    }
  }

  /** What the elements of a kind of buffer are. */
  private record Elements(String kind, int bytes, boolean floating, ByteOrder order) {
    static Elements of(java.nio.Buffer memory) {
      return switch (memory) {
        case FloatBuffer b -> new Elements("FloatBuffer", Float.BYTES, true, b.order());
        case DoubleBuffer b -> new Elements("DoubleBuffer", Double.BYTES, true, b.order());
        case IntBuffer b -> new Elements("IntBuffer", Integer.BYTES, false, b.order());
        case LongBuffer b -> new Elements("LongBuffer", Long.BYTES, false, b.order());
        case ShortBuffer b -> new Elements("ShortBuffer", Short.BYTES, false, b.order());
        case CharBuffer b -> new Elements("CharBuffer", Character.BYTES, false, b.order());
        default -> new Elements("ByteBuffer", 1, false, ByteOrder.nativeOrder());
      };
    }

    /** Says whether a type is what the elements are; 16 bits are an integer to Java alone. */
    boolean are(DataType type) {
      return bytes == type.bytes() && (floating == type.floating() || bytes == Short.BYTES);
    }
  }
}
