package io.nccl4j.benchmarks;

import java.util.concurrent.TimeUnit;
import org.bytedeco.cuda.cudart.CUstream_st;
import org.bytedeco.cuda.global.nccl;
import org.bytedeco.cuda.nccl.ncclComm;
import org.bytedeco.javacpp.Pointer;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;

/** Calls of the JavaCPP presets, with pointer objects that are created once. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class JavaCppCalls extends FirstRank {
  private Pointer from;
  private Pointer to;
  private CUstream_st queue;
  private ncclComm comm;

  /** A pointer to memory that it does not own. */
  private static final class Address extends Pointer {
    Address(long address) {
      this.address = address;
    }
  }

  @Override
  public void open() {
    super.open();
    from = new Address(sendAddress());
    to = new Address(recvAddress());
    queue = new CUstream_st(new Address(streamAddress()));
    comm = new ncclComm();
    checked(nccl.ncclCommInitAll(comm, 1, new int[1]));
  }

  @Override
  public void close() throws InterruptedException {
    checked(nccl.ncclCommDestroy(comm));
    super.close();
  }

  /** One call. */
  @Benchmark
  public int allReduce() {
    return checked(nccl.ncclAllReduce(from, to, COUNT, FLOAT, SUM, comm, queue));
  }

  /** 64 calls in one group. */
  @Benchmark
  public int group64() {
    checked(nccl.ncclGroupStart());
    for (int i = 0; i < GROUP; i++) {
      checked(nccl.ncclAllReduce(from, to, COUNT, FLOAT, SUM, comm, queue));
    }
    return checked(nccl.ncclGroupEnd());
  }
}
