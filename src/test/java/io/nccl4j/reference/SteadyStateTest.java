package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What an all-reduce leaves for the garbage collector once a program is in its stride: nothing. */
class SteadyStateTest {
  // On a busy machine, each takes as long as the other threads keep the processors.
  private static final int OPERATIONS = 1000;
  private static final long[] COUNTED = new long[3];

  static java.util.stream.Stream<Arguments> operations() {
    return java.util.stream.Stream.of(Algorithm.DIRECT, Algorithm.RING, Algorithm.TREE)
        .flatMap(
            algorithm ->
                java.util.stream.Stream.of(DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT8E4M3)
                    .map(type -> Arguments.of(algorithm, type)));
  }

  @ParameterizedTest
  @MethodSource("operations")
  void anAllReduceAllocatesNothingOnTheHeap(Algorithm algorithm, DataType type) {
    check(ReferenceBackend.open(3, ReferenceOptions.defaults().withAlgorithm(algorithm)), type);
  }

  @ParameterizedTest
  @MethodSource("operations")
  void norDoesOneThroughSharedMemory(Algorithm algorithm, DataType type) {
    check(
        ReferenceBackend.openAsProcesses(
            3, 3, ReferenceOptions.defaults().withAlgorithm(algorithm)),
        type);
  }

  private static void check(Backend backend, DataType type) {
    CyclicBarrier together = new CyclicBarrier(3);
    Ranks.run(
        3,
        backend,
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          try (Buffer send = comm.newBuffer(type, 1000);
              Buffer recv = comm.newBuffer(type, 1000)) {
            comm.allReduce(send, recv, ReduceOp.AVG, stream);
            stream.synchronize();
            long bytes = Long.MAX_VALUE;
            // The interpreter's last objects and the compiler's threads come to an end some time.
            for (int attempt = 0; attempt < 10 && bytes >= OPERATIONS; attempt++) {
              together.await(60, TimeUnit.SECONDS);
              long before = allocated(stream);
              reduceOften(comm, send, recv, stream);
              bytes = allocated(stream) - before;
              // Ranks must make equally many attempts.
              bytes = most(together, comm.rank(), bytes);
            }
            long found = bytes;
            assertTrue(bytes < OPERATIONS, () -> found + " bytes in " + OPERATIONS + " operations");
          }
        });
  }

  private static void reduceOften(Communicator comm, Buffer send, Buffer recv, Stream stream) {
    for (int i = 0; i < OPERATIONS; i++) {
      comm.allReduce(send, recv, ReduceOp.AVG, stream);
      if (i % 50 == 49) {
        // The queue stays short, as a program's does.
        stream.synchronize();
      }
    }
    stream.synchronize();
  }

  private static long most(CyclicBarrier together, int rank, long bytes) throws Exception {
    COUNTED[rank] = bytes;
    together.await(60, TimeUnit.SECONDS);
    long most = Arrays.stream(COUNTED).max().orElseThrow();
    together.await(60, TimeUnit.SECONDS);
    return most;
  }

  /** Returns what the stream's thread has allocated. */
  private static long allocated(Stream stream) {
    String name = stream.toString().replaceAll("Stream\\[(.*)\\]", "$1");
    Thread worker =
        Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().equals(name))
            .findFirst()
            .orElseThrow();
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    return threads.getThreadAllocatedBytes(worker.threadId());
  }
}
