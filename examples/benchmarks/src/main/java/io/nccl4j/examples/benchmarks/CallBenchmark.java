package io.nccl4j.examples.benchmarks;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * One call of the contract's {@code allReduce}, checks included, into a library whose collectives
 * do nothing: the stand-in in its no-op mode. Run with {@code -prof gc} it also tells the bytes
 * that a call allocates on the heap.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class CallBenchmark {
  private static final int COUNT = 1024;

  private Backend backend;
  private Communicator communicator;
  private Stream stream;
  private Buffer send;
  private Buffer recv;

  /** Makes a communicator of one rank. */
  @Setup
  public void open() {
    backend = Backend.nccl();
    communicator = backend.communicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
    stream = communicator.newStream();
    send = communicator.allocate(DataType.FLOAT32, COUNT);
    recv = communicator.allocate(DataType.FLOAT32, COUNT);
  }

  /** Closes it. */
  @TearDown
  public void close() {
    recv.close();
    send.close();
    stream.close();
    communicator.close();
    backend.close();
  }

  /** Out of place. */
  @Benchmark
  public void allReduce() {
    communicator.allReduce(send, recv, ReduceOp.SUM, stream);
  }

  /** In place. */
  @Benchmark
  public void allReduceInPlace() {
    communicator.allReduce(send, send, ReduceOp.SUM, stream);
  }
}
