package io.nccl4j.benchmarks;

import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
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
  /** Initialized by the first call, after the library has been loaded. */
  private static final class WithLongs {
    static final MethodHandle ALL_REDUCE = linkWithLongs();
  }

  private MemorySegment from;
  private MemorySegment to;
  private MemorySegment queue;
  private long fromAddress;
  private long toAddress;
  private long queueAddress;

  @Override
  public void open() {
    super.open();
    from = MemorySegment.ofAddress(sendAddress());
    to = MemorySegment.ofAddress(recvAddress());
    queue = MemorySegment.ofAddress(streamAddress());
    fromAddress = sendAddress();
    toAddress = recvAddress();
    queueAddress = streamAddress();
  }

  @SuppressWarnings("restricted")
  private static MethodHandle linkWithLongs() {
    FunctionDescriptor generated = nccl_h.ncclAllReduce$descriptor();
    MemoryLayout[] arguments =
        generated.argumentLayouts().stream()
            .map(layout -> layout instanceof AddressLayout ? ValueLayout.JAVA_LONG : layout)
            .toArray(MemoryLayout[]::new);
    return Linker.nativeLinker()
        .downcallHandle(
            nccl_h.ncclAllReduce$address(),
            FunctionDescriptor.of(generated.returnLayout().orElseThrow(), arguments));
  }

  /** One call. */
  @Benchmark
  public int allReduce() {
    return checked(nccl_h.ncclAllReduce(from, to, COUNT, FLOAT, SUM, queue, queue));
  }

  /**
   * One call linked with longs in place of pointers: the minimum cost of a call with the Foreign
   * Function and Memory API.
   */
  @Benchmark
  public int allReduceWithLongs() throws Throwable {
    return checked(
        (int)
            WithLongs.ALL_REDUCE.invokeExact(
                fromAddress, toAddress, COUNT, FLOAT, SUM, queueAddress, queueAddress));
  }
}
