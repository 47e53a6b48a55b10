package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.LowPrecision;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * The element types of collectives. The codes are those of {@code ncclDataType_t}.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#nccldatatype-t">ncclDataType_t</a>
 */
@NullMarked
public enum DataType {
  /** Signed 8-bit integer. */
  INT8(0, 1, false, -0x1p7, 0x1p7 - 1),
  /** Unsigned 8-bit integer. */
  UINT8(1, 1, false, 0, 0x1p8 - 1),
  /** Signed 32-bit integer. */
  INT32(2, 4, false, -0x1p31, 0x1p31 - 1),
  /** Unsigned 32-bit integer. */
  UINT32(3, 4, false, 0, 0x1p32 - 1),
  /** Signed 64-bit integer. */
  INT64(4, 8, false, -0x1p63, Math.nextDown(0x1p63)),
  /** Unsigned 64-bit integer. */
  UINT64(5, 8, false, 0, Math.nextDown(0x1p64)),
  /** IEEE binary16. */
  FLOAT16(6, 2, true, -65504, 65504),
  /** IEEE binary32. */
  FLOAT32(7, 4, true, -Float.MAX_VALUE, Float.MAX_VALUE),
  /** IEEE binary64. */
  FLOAT64(8, 8, true, -Double.MAX_VALUE, Double.MAX_VALUE),
  /** Bfloat16, the upper half of a binary32: 8 bits of exponent, 7 of mantissa. */
  BFLOAT16(9, 2, true, -0x1.FEp127, 0x1.FEp127),
  /**
   * 8-bit float, 4 bits of exponent, 3 of mantissa; from NCCL 2.24 on. Reductions on GPUs need
   * compute capability 9.0.
   */
  FLOAT8E4M3(10, 1, true, -448, 448),
  /**
   * 8-bit float, 5 bits of exponent, 2 of mantissa; from NCCL 2.24 on. Reductions on GPUs need
   * compute capability 9.0.
   */
  FLOAT8E5M2(11, 1, true, -57344, 57344);

  private final int code;
  private final int bytes;
  private final boolean floating;
  // The smallest and the largest finite value among the doubles.
  private final double min;
  private final double max;

  DataType(int code, int bytes, boolean floating, double min, double max) {
    this.code = code;
    this.bytes = bytes;
    this.floating = floating;
    this.min = min;
    this.max = max;
  }

  /** {@return the {@code ncclDataType_t} code} */
  public int code() {
    return code;
  }

  /** {@return the size of one element in bytes: 1, 2, 4 or 8} */
  public int bytes() {
    return bytes;
  }

  /**
   * {@return the size of a number of elements in bytes}
   *
   * @param count the number of elements; 0 or more
   * @throws IllegalArgumentException if the count is negative, or the size does not fit into a
   *     {@code long}
   */
  public long byteSize(long count) {
    Arguments.atLeast(count, "count", 0);
    if (count > Long.MAX_VALUE / bytes) {
      throw new IllegalArgumentException(
          "count is "
              + count
              + "; the size of that many elements of "
              + this
              + " in bytes does not fit into a long");
    }
    return count * bytes;
  }

  /** {@return whether the elements are floating-point numbers} */
  public boolean floating() {
    return floating;
  }

  /** {@return whether the elements are 8-bit floating-point numbers} */
  public boolean float8() {
    return this == FLOAT8E4M3 || this == FLOAT8E5M2;
  }

  /**
   * Reads one element as a double. Exact for every type but the 64-bit integers, which are rounded;
   * see {@link #getLong}.
   *
   * @param segment host memory that holds elements of this type, of any alignment
   * @param index the index of the element, from 0
   * @return the value
   * @throws IndexOutOfBoundsException if the element does not lie within the segment
   */
  public double get(MemorySegment segment, long index) {
    long offset = offset(segment, index);
    return switch (this) {
      case FLOAT32 -> segment.get(ValueLayout.JAVA_FLOAT_UNALIGNED, offset);
      case FLOAT64 -> segment.get(ValueLayout.JAVA_DOUBLE_UNALIGNED, offset);
      case FLOAT16 ->
          LowPrecision.fromFloat16(segment.get(ValueLayout.JAVA_SHORT_UNALIGNED, offset));
      case BFLOAT16 ->
          LowPrecision.fromBfloat16(segment.get(ValueLayout.JAVA_SHORT_UNALIGNED, offset));
      case FLOAT8E4M3 -> LowPrecision.fromFloat8e4m3(segment.get(ValueLayout.JAVA_BYTE, offset));
      case FLOAT8E5M2 -> LowPrecision.fromFloat8e5m2(segment.get(ValueLayout.JAVA_BYTE, offset));
      case UINT64 -> unsignedToDouble(getLong(segment, index));
      default -> getLong(segment, index);
    };
  }

  /**
   * Writes one element. Floating-point types round to the nearest value, ties to even.
   *
   * @param segment host memory that holds elements of this type, of any alignment
   * @param index the index of the element, from 0
   * @param value the value to write: for integers a whole number of this type's range; for
   *     floating-point types NaN, a number between the smallest and the largest finite value, or an
   *     infinity, which {@link #FLOAT8E4M3} lacks
   * @throws IllegalArgumentException if this type cannot hold the value
   * @throws IndexOutOfBoundsException if the element does not lie within the segment
   */
  public void set(MemorySegment segment, long index, double value) {
    checkHolds(value, "value");
    long offset = offset(segment, index);
    switch (this) {
      case FLOAT32 -> segment.set(ValueLayout.JAVA_FLOAT_UNALIGNED, offset, (float) value);
      case FLOAT64 -> segment.set(ValueLayout.JAVA_DOUBLE_UNALIGNED, offset, value);
      case FLOAT16, BFLOAT16, FLOAT8E4M3, FLOAT8E5M2 ->
          setNarrow(segment, offset, roundToOddFloat(value));
      case UINT64 -> setLong(segment, index, doubleToUnsigned(value));
      default -> setLong(segment, index, (long) value);
    }
  }

  /**
   * Reads one element of an integer type without loss.
   *
   * @param segment host memory that holds elements of this type, of any alignment
   * @param index the index of the element, from 0
   * @return the value; unsigned 64-bit values of 2^63 and above are negative, as for {@link
   *     Long#toUnsignedString(long)}
   * @throws IllegalStateException if this is a floating-point type
   * @throws IndexOutOfBoundsException if the element does not lie within the segment
   */
  public long getLong(MemorySegment segment, long index) {
    long offset = offset(segment, index);
    return switch (this) {
      case INT8 -> segment.get(ValueLayout.JAVA_BYTE, offset);
      case UINT8 -> Byte.toUnsignedLong(segment.get(ValueLayout.JAVA_BYTE, offset));
      case INT32 -> segment.get(ValueLayout.JAVA_INT_UNALIGNED, offset);
      case UINT32 -> Integer.toUnsignedLong(segment.get(ValueLayout.JAVA_INT_UNALIGNED, offset));
      case INT64, UINT64 -> segment.get(ValueLayout.JAVA_LONG_UNALIGNED, offset);
      default -> throw new IllegalStateException(this + " is not an integer type");
    };
  }

  /**
   * Writes one element of an integer type.
   *
   * @param segment host memory that holds elements of this type, of any alignment
   * @param index the index of the element, from 0
   * @param value the value to write, in this type's range; for {@link #UINT64} as {@link #getLong}
   *     returns it
   * @throws IllegalArgumentException if this type cannot hold the value
   * @throws IllegalStateException if this is a floating-point type
   * @throws IndexOutOfBoundsException if the element does not lie within the segment
   */
  public void setLong(MemorySegment segment, long index, long value) {
    if (bytes < Long.BYTES && !floating) {
      checkHolds((double) value, "value");
    }
    long offset = offset(segment, index);
    switch (this) {
      case INT8, UINT8 -> segment.set(ValueLayout.JAVA_BYTE, offset, (byte) value);
      case INT32, UINT32 -> segment.set(ValueLayout.JAVA_INT_UNALIGNED, offset, (int) value);
      case INT64, UINT64 -> segment.set(ValueLayout.JAVA_LONG_UNALIGNED, offset, value);
      default -> throw new IllegalStateException(this + " is not an integer type");
    }
  }

  /** Throws unless this type can hold a value, except for the rounding of floats. */
  void checkHolds(double value, String argument) {
    boolean holds;
    if (Double.isFinite(value)) {
      holds = value >= min && value <= max && (floating || value == Math.rint(value));
    } else {
      holds = floating && (Double.isNaN(value) || this != FLOAT8E4M3);
    }
    if (!holds) {
      throw new IllegalArgumentException(
          argument + " is " + value + "; " + this + " holds " + range());
    }
  }

  private String range() {
    if (floating) {
      String others = this == FLOAT8E4M3 ? "NaN" : "NaN, infinities";
      return others + " and numbers from " + min + " to " + max;
    }
    int unused = Long.SIZE - 8 * bytes;
    return "whole numbers from "
        + (min == 0
            ? "0 to " + Long.toUnsignedString(-1L >>> unused)
            : (Long.MIN_VALUE >> unused) + " to " + (Long.MAX_VALUE >> unused));
  }

  /** Returns the offset of an element; its bounds check cannot overflow. */
  private long offset(MemorySegment segment, long index) {
    return Objects.checkIndex(index, segment.byteSize() / bytes) * bytes;
  }

  private void setNarrow(MemorySegment segment, long offset, float value) {
    switch (this) {
      case FLOAT16 ->
          segment.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, LowPrecision.toFloat16(value));
      case BFLOAT16 ->
          segment.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, LowPrecision.toBfloat16(value));
      case FLOAT8E4M3 ->
          segment.set(ValueLayout.JAVA_BYTE, offset, LowPrecision.toFloat8e4m3(value));
      default ->
          segment.set(
              ValueLayout.JAVA_BYTE,
              offset,
              // The conversion saturates as that of GPUs does; this type has infinities, though.
              Float.isInfinite(value)
                  ? (byte) (value > 0 ? 0x7C : 0xFC)
                  : LowPrecision.toFloat8e5m2(value));
    }
  }

  /**
   * Rounds to odd, so that a second rounding to fewer bits yields the same result as rounding the
   * double directly: an inexact value gets an odd last bit, which no tie of a narrower format has.
   */
  private static float roundToOddFloat(double value) {
    float nearest = (float) value;
    if (nearest == value || Double.isNaN(value) || Float.isInfinite(nearest)) {
      return nearest;
    }
    int bits = Float.floatToRawIntBits(nearest);
    if ((bits & 1) == 1) {
      return nearest;
    }
    boolean towardZero = Math.abs((double) nearest) > Math.abs(value);
    return Float.intBitsToFloat(towardZero ? bits - 1 : bits + 1);
  }

  private static double unsignedToDouble(long value) {
    // Halving with the lost bit kept as a sticky bit rounds the same way as the full value.
    return value >= 0 ? value : (double) ((value >>> 1) | (value & 1)) * 2;
  }

  private static long doubleToUnsigned(double value) {
    return value < 0x1p63 ? (long) value : (long) (value - 0x1p63) ^ Long.MIN_VALUE;
  }
}
