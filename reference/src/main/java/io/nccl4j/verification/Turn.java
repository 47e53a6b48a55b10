package io.nccl4j.verification;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What a rank has to check next, as it tells the others.
 *
 * @param number the number of the collective, or 0
 * @param latest the number of the last collective that it has chosen
 * @param closing whether it will have no more
 * @param skip why the collective is not checked, or null
 * @param choice what NCCL has chosen, or null
 */
record Turn(
    long number,
    long latest,
    boolean closing,
    SkipReason skip,
    Operation operation,
    DataType type,
    long count,
    int operator,
    NcclChoice choice) {
  private static final List<SkipReason> REASONS = List.of(SkipReason.values());
  private static final List<Operation> OPERATIONS = List.of(Operation.values());
  private static final List<DataType> TYPES = List.of(DataType.values());
  private static final int NUMBERS = 9;

  long[] encode() {
    return new long[] {
      number,
      latest,
      closing ? 1 : 0,
      skip == null ? -1 : REASONS.indexOf(skip),
      OPERATIONS.indexOf(operation),
      TYPES.indexOf(type),
      count,
      operator,
      NcclChoice.encode(choice)
    };
  }

  /** Returns the turns of all ranks. */
  static List<Turn> decode(long[] numbers) {
    List<Turn> turns = new ArrayList<>();
    for (int at = 0; at < numbers.length; at += NUMBERS) {
      long[] n = Arrays.copyOfRange(numbers, at, at + NUMBERS);
      turns.add(
          new Turn(
              n[0],
              n[1],
              n[2] != 0,
              n[3] < 0 ? null : REASONS.get((int) n[3]),
              OPERATIONS.get((int) n[4]),
              TYPES.get((int) n[5]),
              n[6],
              (int) n[7],
              NcclChoice.decode(n[8])));
    }
    return turns;
  }

  private int shape() {
    return call(operation, type, count, operator, CommunicatorDriver.NO_PEER).shape();
  }

  boolean sameCall(Turn other) {
    return shape() == other.shape() && count == other.count;
  }

  /** Describes the call as the reference does. */
  String describe() {
    return Call.describe(shape(), count, CommunicatorDriver.NO_PEER);
  }

  /** Returns the reference's call with these arguments, without data. */
  static Call call(Operation operation, DataType type, long count, int operator, int peer) {
    ReductionOp combine =
        operator == CommunicatorDriver.NO_OPERATOR
            ? null
            : operator < ReductionOp.FIRST_CREATED
                ? ReductionOp.standard(operator)
                : ReductionOp.mulsum(type, 1);
    return Call.withoutData(operation, type, count, combine, peer);
  }
}
