package io.nccl4j.internal.reference.collective;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.spi.BufferMemory;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * The arguments of one operation of a rank.
 *
 * @param operator how elements are combined, or null
 * @param peer the root or the peer
 * @param send the data to send, or null
 * @param recv the destination, or null
 */
public record Call(
    Operation operation,
    DataType type,
    long count,
    ReductionOp operator,
    int peer,
    MemorySegment send,
    MemorySegment recv) {
  private static final List<Operation> OPERATIONS = List.of(Operation.values());
  // The codes of the types are 0, 1, 2, ...
  private static final List<DataType> TYPES = List.of(DataType.values());

  public static Call of(
      Operation operation,
      BufferMemory from,
      BufferMemory to,
      long count,
      ReductionOp operator,
      int peer) {
    return new Call(
        operation,
        (from != null ? from : to).type(),
        count,
        operator,
        peer,
        from == null ? null : from.pointer(),
        to == null ? null : to.pointer());
  }

  /** Returns a call that only waits for the same calls of all ranks. */
  public static Call withoutData(
      Operation operation, DataType type, long count, ReductionOp operator, int peer) {
    return new Call(operation, type, count, operator, peer, null, null);
  }

  /** Returns whether any rank's data is moved. */
  boolean movesData() {
    return send != null || recv != null;
  }

  public long bytes() {
    return count * type.bytes();
  }

  /** Encodes what the ranks of a collective must agree on, other than count and root. */
  public int shape() {
    int op = operator == null ? 0 : 1 + operator.kind().code();
    return (code(operation) << 16) | (type.code() << 8) | op;
  }

  @SuppressWarnings("EnumOrdinal") // It only has to be the same on all ranks.
  private static int code(Operation operation) {
    return operation.ordinal();
  }

  /** Returns whether a number, which may come from another process, is a valid shape. */
  public static boolean isShape(int shape) {
    return shape >>> 16 < OPERATIONS.size()
        && ((shape >>> 8) & 0xFF) < TYPES.size()
        && (shape & 0xFF) <= ReductionOp.Kind.values().length;
  }

  /** Returns the operation of a call of this shape. */
  public static Operation operation(int shape) {
    return OPERATIONS.get(shape >>> 16);
  }

  /** Describes a call of this shape, for a message about ranks whose calls differ. */
  public static String describe(int shape, long count, int root) {
    Operation operation = operation(shape);
    int op = shape & 0xFF;
    return operation.method()
        + "(count "
        + count
        + ", "
        + typeOf((shape >>> 8) & 0xFF)
        + (op == 0 ? "" : ", " + ReductionOp.Kind.ofCode(op - 1).label())
        + (operation.rooted() ? ", root " + root : "")
        + ")";
  }

  /** Returns the type with a code. */
  static DataType typeOf(int code) {
    return TYPES.get(code);
  }
}
