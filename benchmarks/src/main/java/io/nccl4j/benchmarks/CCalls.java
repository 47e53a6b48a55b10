package io.nccl4j.benchmarks;

import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;

/** C calls through the PLT, in a loop in C or one per JNI call. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class CCalls extends FirstRank {
  private static final int LOOP = 100_000;

  private long from;
  private long to;
  private long queue;

  @Override
  @SuppressWarnings("restricted")
  public void open() {
    super.open();
    System.load(System.getProperty("peers.library"));
    from = sendAddress();
    to = recvAddress();
    queue = streamAddress();
  }

  /** A loop in C: one JNI call per 100,000 calls of the library. */
  @Benchmark
  @OperationsPerInvocation(LOOP)
  public int loop() {
    return checked(loop(LOOP, from, to, COUNT, FLOAT, SUM, queue, queue));
  }

  /** One call through plain JNI. */
  @Benchmark
  public int jni() {
    return checked(allReduce(from, to, COUNT, FLOAT, SUM, queue, queue));
  }

  private static native int allReduce(
      long send, long recv, long count, int type, int op, long comm, long stream);

  private static native int loop(
      int times, long send, long recv, long count, int type, int op, long comm, long stream);
}
