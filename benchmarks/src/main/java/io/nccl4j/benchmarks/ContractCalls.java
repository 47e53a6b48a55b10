package io.nccl4j.benchmarks;

import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;

/** Calls of nccl4j's public API, with all checks. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class ContractCalls extends FirstRank {
  // Created once, as in a training loop; a lambda per group would allocate 16 bytes.
  private final Runnable step = this::repeat;

  /** One call. */
  @Benchmark
  public void allReduce() {
    communicator.allReduce(send, recv, ReduceOp.SUM, stream);
  }

  /** 64 calls without a group, for comparison with {@link #group64}. */
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
}
