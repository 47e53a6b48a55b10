package io.nccl4j.tools.evidence;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * One call whose result is compared.
 *
 * @param operation the operation; {@link Operation#SEND} stands for a ring of sends and receives
 * @param combine the reduction; {@link Combine#NOTHING} if data is only moved
 * @param count the count argument of NCCL's function
 * @param root the root, if the operation has one
 */
record Call(
    Operation operation,
    Combine combine,
    DataType type,
    int ranks,
    long count,
    int root,
    boolean inPlace) {
  /**
   * A reduction operator; a pre-multiplied sum belongs to a communicator, so it is only named here.
   */
  enum Combine {
    NOTHING,
    SUM,
    PROD,
    MAX,
    MIN,
    AVG,
    MULSUM;

    /** Returns whether each rank's data is multiplied before the sum. */
    boolean scales() {
      return this == AVG || this == MULSUM;
    }

    /** Returns the operator, or null if it is not common to all communicators. */
    ReduceOp op() {
      return switch (this) {
        case SUM -> ReduceOp.SUM;
        case PROD -> ReduceOp.PROD;
        case MAX -> ReduceOp.MAX;
        case MIN -> ReduceOp.MIN;
        case AVG -> ReduceOp.AVG;
        case NOTHING, MULSUM -> null;
      };
    }

    String label() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private static final List<Operation> OPERATIONS =
      List.of(
          Operation.ALL_REDUCE,
          Operation.REDUCE,
          Operation.REDUCE_SCATTER,
          Operation.BROADCAST,
          Operation.ALL_GATHER,
          Operation.ALL_TO_ALL,
          Operation.GATHER,
          Operation.SCATTER,
          Operation.SEND);

  /** Returns an all-reduce in place. */
  static Call allReduce(Combine combine, DataType type, int ranks, long count) {
    return new Call(Operation.ALL_REDUCE, combine, type, ranks, count, 0, true);
  }

  /**
   * Returns all operations with all operators, for one type and count. Leaves out those that NCCL
   * refuses: a single rank's averages and pre-multiplied sums of float8 (seen in 2.30.7).
   *
   * @param reduced whether the GPUs can reduce the type
   */
  static List<Call> all(DataType type, int ranks, long count, boolean inPlace, boolean reduced) {
    List<Call> calls = new ArrayList<>();
    for (Operation operation : OPERATIONS) {
      for (Combine combine : Combine.values()) {
        boolean refused = ranks == 1 && type.float8() && combine.scales();
        Call call = new Call(operation, combine, type, ranks, count, calls.size() % ranks, inPlace);
        if (operation.reduces()
            ? combine != Combine.NOTHING && reduced && !refused
            : combine == Combine.NOTHING && (!inPlace || call.hasInPlaceForm())) {
          calls.add(call);
        }
      }
    }
    return calls;
  }

  /** Returns its label in tables. */
  String label() {
    String name = operation == Operation.SEND ? "send and recv" : operation.method();
    return combine == Combine.NOTHING ? name : name + " " + combine.label();
  }

  private boolean hasInPlaceForm() {
    return operation != Operation.ALL_TO_ALL && operation != Operation.SEND;
  }

  /** Returns the number of elements that a sending rank sends. */
  long sendCount() {
    return switch (operation) {
      case REDUCE_SCATTER, ALL_TO_ALL, SCATTER -> ranks * count;
      default -> count;
    };
  }

  /** Returns the number of elements that a receiving rank receives. */
  long recvCount() {
    return switch (operation) {
      case ALL_GATHER, ALL_TO_ALL, GATHER -> ranks * count;
      default -> count;
    };
  }

  /** Returns whether a rank has a result. */
  boolean receives(int rank) {
    return rank == root || (operation != Operation.REDUCE && operation != Operation.GATHER);
  }

  /** Returns an element of a result, a {@code Double} or a {@code Long}. */
  Object element(MemorySegment data, long index) {
    return type.floating() ? (Object) type.get(data, index) : (Object) type.getLong(data, index);
  }
}
