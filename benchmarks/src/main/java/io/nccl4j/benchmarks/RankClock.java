package io.nccl4j.benchmarks;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.ValueLayout;

/** Times a rank's operations in step with the other ranks. */
final class RankClock implements AutoCloseable {
  private static final double MICROSECOND = 1e3;

  private final Communicator communicator;
  private final Stream stream;
  private final Buffer value;

  RankClock(Communicator communicator) {
    this.communicator = communicator;
    this.stream = communicator.newStream();
    this.value = communicator.newBuffer(DataType.FLOAT64, 1);
  }

  Communicator communicator() {
    return communicator;
  }

  Stream stream() {
    return stream;
  }

  /** Waits for all ranks and returns the maximum of their values. */
  double maxOverRanks(double ownValue) {
    value.segment().set(ValueLayout.JAVA_DOUBLE, 0, ownValue);
    communicator.allReduce(value, value, ReduceOp.MAX, stream);
    stream.synchronize();
    return value.segment().get(ValueLayout.JAVA_DOUBLE, 0);
  }

  /**
   * Enqueues an operation {@code operations} times and waits for the last. Returns the microseconds
   * per operation on the slowest rank.
   */
  double time(int operations, Runnable operation) {
    maxOverRanks(0);
    long start = System.nanoTime();
    for (int i = 0; i < operations; i++) {
      operation.run();
    }
    stream.synchronize();
    return maxOverRanks(System.nanoTime() - start) / MICROSECOND / operations;
  }

  @Override
  public void close() {
    maxOverRanks(0);
    value.close();
    stream.close();
  }
}
