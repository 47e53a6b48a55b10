package io.nccl4j.verification;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import java.lang.foreign.MemorySegment;

/**
 * A collective to check.
 *
 * @param number its number in the communicator; 0 stands for those that were launched while this
 *     rank was busy, and takes part in the agreement on the next one
 * @param skip why it is not checked, or null
 * @param input where the stream copies the input, or null
 * @param output where the stream copies the output, or null
 */
record Sample(
    long number,
    Operation operation,
    DataType type,
    long count,
    int operator,
    SkipReason skip,
    MemorySegment input,
    MemorySegment output,
    NcclChoice.Awaited choice) {
  static final Sample NONE =
      new Sample(0, Operation.ALL_REDUCE, DataType.INT8, 0, 0, SkipReason.BUSY, null, null, null);

  Sample skipped(SkipReason reason) {
    return new Sample(number, operation, type, count, operator, reason, input, output, choice);
  }
}
