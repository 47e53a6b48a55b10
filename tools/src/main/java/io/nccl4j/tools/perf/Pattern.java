package io.nccl4j.tools.perf;

import io.nccl4j.DataType;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * An endlessly repeated sequence of elements, with which buffers are filled and compared.
 *
 * <p>The period is prime, so that no chunk, slice or tile of a collective is a multiple of it, and
 * misplaced data differs. It fits a processor's cache, so that filling and comparing run at the
 * speed of the buffer's memory.
 */
final class Pattern {
  static final int PERIOD = 16381;

  private final DataType type;
  private final MemorySegment elements;

  /** The bounds of each element, or null for a bitwise comparison. */
  private final double[] low;

  private final double[] high;

  private Pattern(DataType type, double[] low, double[] high) {
    this.type = type;
    this.elements = Arena.ofAuto().allocate((long) PERIOD * type.bytes(), Long.BYTES);
    this.low = low;
    this.high = high;
  }

  /** Returns a pattern of zeros, whose elements the caller sets; data must equal it bitwise. */
  static Pattern exact(DataType type) {
    return new Pattern(type, null, null);
  }

  /** Returns a pattern that data matches if each element lies within its bounds. */
  static Pattern within(DataType type, double[] low, double[] high) {
    return new Pattern(type, low, high);
  }

  /** Returns a pattern with all bits set: NaN for floating-point types, else -1 or the maximum. */
  static Pattern poison(DataType type) {
    Pattern pattern = exact(type);
    pattern.elements.fill((byte) 0xFF);
    return pattern;
  }

  /** Returns the elements of one period. */
  MemorySegment elements() {
    return elements;
  }

  /** Fills a segment with the pattern, from its element {@code start} on. */
  void write(MemorySegment target, long start) {
    long period = elements.byteSize();
    long from = start % PERIOD * type.bytes();
    for (long done = 0; done < target.byteSize(); from = 0) {
      long bytes = Math.min(period - from, target.byteSize() - done);
      MemorySegment.copy(elements, from, target, done, bytes);
      done += bytes;
    }
  }

  /** Counts the elements of a segment that differ from the pattern, from its {@code start} on. */
  long wrong(MemorySegment data, long start) {
    long period = elements.byteSize();
    long from = start % PERIOD * type.bytes();
    long wrong = 0;
    for (long done = 0; done < data.byteSize(); from = 0) {
      long bytes = Math.min(period - from, data.byteSize() - done);
      wrong +=
          low == null
              ? different(data, done, from, bytes)
              : outside(data, done, (int) (from / type.bytes()), (int) (bytes / type.bytes()));
      done += bytes;
    }
    return wrong;
  }

  private long different(MemorySegment data, long at, long from, long bytes) {
    long first = MemorySegment.mismatch(data, at, at + bytes, elements, from, from + bytes);
    if (first < 0) {
      return 0;
    }
    int size = type.bytes();
    long wrong = 0;
    for (long i = first / size * size; i < bytes; i += size) {
      if (MemorySegment.mismatch(data, at + i, at + i + size, elements, from + i, from + i + size)
          >= 0) {
        wrong++;
      }
    }
    return wrong;
  }

  private long outside(MemorySegment data, long at, int from, int count) {
    long first = at / type.bytes();
    long wrong = 0;
    for (int i = 0; i < count; i++) {
      double value = type.get(data, first + i);
      // This form counts NaN as outside.
      if (!(value >= low[from + i] && value <= high[from + i])) {
        wrong++;
      }
    }
    return wrong;
  }
}
