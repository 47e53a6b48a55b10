package io.nccl4j.benchmarks;

import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;

/** The contract's calls, with all their checks. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class ContractCalls extends FirstRank {
  // Made once, as a training loop would: a lambda made for each group is 16 bytes of it.
  private final Runnable step = this::repeat;

  /** One call, out of place. */
  @Benchmark
  public void allReduce() {
    communicator.allReduce(send, recv, ReduceOp.SUM, stream);
  }

  /** One call, in place. */
  @Benchmark
  public void allReduceInPlace() {
    communicator.allReduce(send, send, ReduceOp.SUM, stream);
  }

  /** Calls one after the other, for comparison with a group of as many. */
  @Benchmark
  public void calls64() {
    repeat();
  }

  /** The same calls as one group. */
  @Benchmark
  public void group64() {
    Group.run(step);
  }

  private void repeat() {
    for (int i = 0; i < GROUP; i++) {
      communicator.allReduce(sends[i], recvs[i], ReduceOp.SUM, stream);
    }
  }

  /** The rank, which is no native call. */
  @Benchmark
  public int rank() {
    return communicator.rank();
  }
}
