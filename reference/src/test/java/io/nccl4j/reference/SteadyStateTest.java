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

/** An all-reduce allocates nothing on the heap in the steady state. */
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
  void allReduceAllocatesNothing(Algorithm algorithm, DataType type) {
    check(ReferenceBackend.open(3, ReferenceOptions.defaults().withAlgorithm(algorithm)), type);
  }

  @ParameterizedTest
  @MethodSource("operations")
  void allReduceThroughSharedMemoryAllocatesNothing(Algorithm algorithm, DataType type) {
    check(
        ReferenceBackend.openAsProcesses(
            3, 3, ReferenceOptions.defaults().withAlgorithm(algorithm)),
        type);
  }

  private static void check(Backend backend, DataType type) {
    CyclicBarrier barrier = new CyclicBarrier(3);
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
            // Repeated, since the interpreter and the compiler allocate during warm-up.
            for (int attempt = 0; attempt < 10 && bytes >= OPERATIONS; attempt++) {
              barrier.await(60, TimeUnit.SECONDS);
              long before = allocated(stream);
              reduceRepeatedly(comm, send, recv, stream);
              bytes = allocated(stream) - before;
              // All ranks must make the same number of attempts.
              bytes = max(barrier, comm.rank(), bytes);
            }
            long found = bytes;
            assertTrue(bytes < OPERATIONS, () -> found + " bytes in " + OPERATIONS + " operations");
          }
        });
  }

  private static void reduceRepeatedly(Communicator comm, Buffer send, Buffer recv, Stream stream) {
    for (int i = 0; i < OPERATIONS; i++) {
      comm.allReduce(send, recv, ReduceOp.AVG, stream);
      if (i % 50 == 49) {
        // Keeps the queue short, as in a real program.
        stream.synchronize();
      }
    }
    stream.synchronize();
  }

  private static long max(CyclicBarrier barrier, int rank, long bytes) throws Exception {
    COUNTED[rank] = bytes;
    barrier.await(60, TimeUnit.SECONDS);
    long max = Arrays.stream(COUNTED).max().orElseThrow();
    barrier.await(60, TimeUnit.SECONDS);
    return max;
  }

  /** Returns the bytes that the stream's thread has allocated. */
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
