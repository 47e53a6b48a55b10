package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Locale;

/**
 * What a {@code ReduceOp} does, with what it needs after its owner has closed it.
 *
 * @param kind how elements are combined
 * @param factor the scalar of {@link Kind#MULSUM} as raw bits of its type, if {@code scalar} is
 *     null
 * @param scalar where the scalar lies, to be read when the reduction runs, or null
 */
public record ReductionOp(Kind kind, long factor, MemorySegment scalar) {
  /** The ways to combine. */
  public enum Kind {
    SUM(0),
    PROD(1),
    MAX(2),
    MIN(3),
    AVG(4),
    MULSUM(5);

    private static final List<Kind> BY_CODE = List.of(values());

    private final int code;

    Kind(int code) {
      this.code = code;
    }

    /** Returns the code of {@code ncclRedOp_t}, of {@link #MULSUM} the first that is created. */
    public int code() {
      return code;
    }

    public static Kind ofCode(int code) {
      return BY_CODE.get(code);
    }

    public String label() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private static final ReductionOp[] STANDARD = {
    new ReductionOp(Kind.SUM, 0, null),
    new ReductionOp(Kind.PROD, 0, null),
    new ReductionOp(Kind.MAX, 0, null),
    new ReductionOp(Kind.MIN, 0, null),
    new ReductionOp(Kind.AVG, 0, null)
  };

  /** The first code that is not of a standard operator. */
  public static final int FIRST_CREATED = STANDARD.length;

  public static ReductionOp standard(int code) {
    return STANDARD[code];
  }

  public static ReductionOp mulsum(DataType type, double scalar) {
    return new ReductionOp(Kind.MULSUM, bitsOf(type, scalar), null);
  }

  public static ReductionOp mulsum(MemorySegment scalar) {
    return new ReductionOp(Kind.MULSUM, 0, scalar);
  }

  /** Returns the scalar of {@link Kind#MULSUM} at this time, as raw bits. */
  long factor(DataType type) {
    return scalar == null ? factor : bitsAt(type, scalar);
  }

  /**
   * Returns what each element is multiplied with for an average over so many ranks, as raw bits.
   */
  static long averageFactor(DataType type, int ranks) {
    // NCCL narrows 1/n by way of a float, except for doubles.
    return bitsOf(type, type == DataType.FLOAT64 ? 1.0 / ranks : (float) (1.0 / ranks));
  }

  private static long bitsOf(DataType type, double value) {
    MemorySegment cell = MemorySegment.ofArray(new long[1]);
    type.set(cell, 0, value);
    return bitsAt(type, cell);
  }

  private static long bitsAt(DataType type, MemorySegment cell) {
    return switch (type.bytes()) {
      case 1 -> cell.get(ValueLayout.JAVA_BYTE, 0);
      case 2 -> cell.get(ValueLayout.JAVA_SHORT_UNALIGNED, 0);
      case 4 -> cell.get(ValueLayout.JAVA_INT_UNALIGNED, 0);
      default -> cell.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
    };
  }
}
