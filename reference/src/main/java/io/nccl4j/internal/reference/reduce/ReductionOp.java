package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Locale;

/**
 * The operation of a {@code ReduceOp}. It remains usable after the {@code ReduceOp} is closed.
 *
 * @param kind how elements are combined
 * @param factor the scalar of {@link Kind#MULSUM} as raw bits of its type, if {@code scalar} is
 *     null
 * @param scalar the memory that contains the scalar, which is read when the reduction runs, or null
 */
public record ReductionOp(Kind kind, long factor, MemorySegment scalar) {
  /** How elements are combined. */
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

    /** Returns the {@code ncclRedOp_t} code; for {@link #MULSUM}, that of the first created one. */
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

  /** The code of the first operator that is not a standard one. */
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

  /** Returns the current scalar of {@link Kind#MULSUM}, as raw bits. */
  long factor(DataType type) {
    return scalar == null ? factor : bitsAt(type, scalar);
  }

  /** Returns the factor by which an average over ranks multiplies each element, as raw bits. */
  static long averageFactor(DataType type, int ranks) {
    // NCCL converts 1/n through a float, except for doubles.
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
