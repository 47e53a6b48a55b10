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

/** Validates direct {@code java.nio} buffers whose memory a {@link Buffer} wraps. */
final class DirectMemory {
  private DirectMemory() {}

  /** Returns the memory from position to limit; the segment keeps the buffer reachable. */
  static MemorySegment of(java.nio.Buffer memory, DataType type) {
    Objects.requireNonNull(memory, "memory");
    Objects.requireNonNull(type, "type");
    Elements elements = Elements.of(memory);
    if (!memory.isDirect()) {
      throw new IllegalArgumentException(
          "memory is a " + elements.kind + " on the Java heap; it must be direct");
    }
    check(elements, type);
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
          "type is " + type + "; the elements of a " + elements.kind + " have another type");
    }
    if (elements.order != ByteOrder.nativeOrder() && type.bytes() > 1) {
      throw new IllegalArgumentException(
          "memory is in the order "
              + elements.order
              + "; it must be in this machine's, "
              + ByteOrder.nativeOrder()
              + ": call order(ByteOrder.nativeOrder()) on the ByteBuffer, also after slice() and"
              + " duplicate()");
    }
  }

  /** The element properties of a kind of buffer. */
  private record Elements(String kind, int bytes, boolean floating, ByteOrder order) {
    static Elements of(java.nio.Buffer memory) {
      return switch (memory) {
        case FloatBuffer b -> new Elements("FloatBuffer", Float.BYTES, true, b.order());
        case DoubleBuffer b -> new Elements("DoubleBuffer", Double.BYTES, true, b.order());
        case IntBuffer b -> new Elements("IntBuffer", Integer.BYTES, false, b.order());
        case LongBuffer b -> new Elements("LongBuffer", Long.BYTES, false, b.order());
        case ShortBuffer b -> new Elements("ShortBuffer", Short.BYTES, false, b.order());
        case CharBuffer b -> new Elements("CharBuffer", Character.BYTES, false, b.order());
        case ByteBuffer b -> new Elements("ByteBuffer", 1, false, b.order());
      };
    }

    /**
     * Returns whether the elements can have this type. Bytes may be parts of any element, and
     * 16-bit elements may be floats, which Java lacks.
     */
    boolean are(DataType type) {
      return bytes == 1
          || (bytes == type.bytes() && (floating == type.floating() || bytes == Short.BYTES));
    }
  }
}
