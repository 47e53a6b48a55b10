package io.nccl4j.tools.evidence;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * One call of the cross-check.
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
  }

  private static final List<Operation> REDUCTIONS =
      List.of(Operation.ALL_REDUCE, Operation.REDUCE, Operation.REDUCE_SCATTER);
  private static final List<Operation> MOVES =
      List.of(
          Operation.BROADCAST,
          Operation.ALL_GATHER,
          Operation.ALL_TO_ALL,
          Operation.GATHER,
          Operation.SCATTER,
          Operation.SEND);

  /**
   * Returns all operations with all operators, for one type and count. Leaves out those that NCCL
   * refuses: a single rank's averages and pre-multiplied sums of float8 (seen in 2.30.7).
   */
  static List<Call> all(DataType type, int ranks, long count, boolean inPlace, boolean reduced) {
    List<Call> calls = new ArrayList<>();
    for (Operation operation : REDUCTIONS) {
      for (Combine combine : Combine.values()) {
        boolean refused = ranks == 1 && type.float8() && combine.scales();
        if (reduced && combine != Combine.NOTHING && !refused) {
          calls.add(
              new Call(operation, combine, type, ranks, count, calls.size() % ranks, inPlace));
        }
      }
    }
    for (Operation operation : MOVES) {
      Call call =
          new Call(operation, Combine.NOTHING, type, ranks, count, calls.size() % ranks, inPlace);
      if (!inPlace || call.hasInPlaceForm()) {
        calls.add(call);
      }
    }
    return calls;
  }

  /** Returns its label in tables. */
  String label() {
    String name = operation == Operation.SEND ? "send and recv" : operation.method();
    return combine == Combine.NOTHING ? name : name + " " + combine.name().toLowerCase(Locale.ROOT);
  }

  boolean hasInPlaceForm() {
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

  @Override
  public String toString() {
    return "%s of %d %s, %d ranks, root %d, %s"
        .formatted(label(), count, type, ranks, root, inPlace ? "in-place" : "out-of-place");
  }
}
