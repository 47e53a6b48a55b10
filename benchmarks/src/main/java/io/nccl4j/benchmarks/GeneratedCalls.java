package io.nccl4j.benchmarks;

import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;

/**
 * Direct calls of the generated binding, without checks. The module does not export it, but the
 * benchmarks run on the class path.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class GeneratedCalls extends FirstRank {
  private MemorySegment from;
  private MemorySegment to;
  private MemorySegment queue;

  @Override
  public void open() {
    super.open();
    from = MemorySegment.ofAddress(sendAddress());
    to = MemorySegment.ofAddress(recvAddress());
    queue = MemorySegment.ofAddress(streamAddress());
  }

  /** One call. */
  @Benchmark
  public int allReduce() {
    return checked(nccl_h.ncclAllReduce(from, to, COUNT, FLOAT, SUM, queue, queue));
  }
}
