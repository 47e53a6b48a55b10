package io.nccl4j.internal.reference.collective;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.spi.BufferMemory;
import java.lang.foreign.MemorySegment;
import java.util.List;

/** The arguments of one operation of a rank. Reused, so that a call allocates nothing. */
public final class Call {
  private static final List<Operation> OPERATIONS = List.of(Operation.values());
  // The codes of the types are 0, 1, 2, ...
  private static final List<DataType> TYPES = List.of(DataType.values());

  public Operation operation;
  public DataType type;
  public long count;
  ReductionOp operator;
  public int peer;
  public MemorySegment send;
  public MemorySegment recv;

  public void set(
      Operation called,
      BufferMemory from,
      BufferMemory to,
      long elements,
      ReductionOp reductionOp,
      int rootOrPeer) {
    operation = called;
    type = from != null ? from.type() : to.type();
    count = elements;
    operator = reductionOp;
    peer = rootOrPeer;
    send = from == null ? null : from.pointer();
    recv = to == null ? null : to.pointer();
  }

  /** Drops the references to the operator and to the buffers, which the caller owns. */
  public void clear() {
    operator = null;
    send = null;
    recv = null;
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
