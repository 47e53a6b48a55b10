package io.nccl4j.examples.benchmarks;

import io.nccl4j.Buffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Setup;

/** The contract's calls, with all their checks. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class ContractCalls extends FirstRank {
  /** How many all-reduces a group holds, as when a framework flushes its gradient buckets. */
  static final int GROUP = 64;

  private final Buffer[] sends = new Buffer[GROUP];
  private final Buffer[] recvs = new Buffer[GROUP];
  // Made once, as a training loop would: a lambda made for each group is 16 bytes of it.
  private final Runnable step = this::repeat;

  /** Cuts the buffers up: operations of one group have memory of their own. */
  @Setup
  public void slice() {
    long count = COUNT / GROUP;
    for (int i = 0; i < GROUP; i++) {
      sends[i] = send.slice(i * count, count);
      recvs[i] = recv.slice(i * count, count);
    }
  }

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
