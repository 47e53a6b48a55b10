package io.nccl4j.tools.doctor;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Optional;

/** Runs a small all-reduce of two ranks on the reference backend, which needs only Java. */
final class ReferenceProbe {
  static final int RANKS = 2;
  static final int COUNT = 1_000;

  private ReferenceProbe() {}

  /**
   * Runs the all-reduce.
   *
   * @param timeout the time limit of each wait
   * @return why it failed; empty if it was correct
   */
  static Optional<String> run(Duration timeout) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout);
    try (Backend backend = Backend.reference(RANKS)) {
      backend.runRanks(RANKS, ReferenceProbe::allReduce, config);
      return Optional.empty();
    } catch (RuntimeException | Error e) {
      return Optional.of(e.toString());
    }
  }

  private static void allReduce(Communicator comm) {
    try (Arena arena = Arena.ofConfined();
        Stream stream = comm.newStream();
        Buffer values = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      MemorySegment host = arena.allocate(ValueLayout.JAVA_FLOAT, COUNT);
      for (int i = 0; i < COUNT; i++) {
        host.setAtIndex(ValueLayout.JAVA_FLOAT, i, comm.rank() + i);
      }
      values.copyFromAsync(host, stream);
      comm.allReduce(values, values, ReduceOp.SUM, stream);
      values.copyTo(host, stream);
      stream.synchronize();
      for (int i = 0; i < COUNT; i++) {
        float sum = host.getAtIndex(ValueLayout.JAVA_FLOAT, i);
        if (sum != 2f * i + 1) {
          throw new IllegalStateException(
              "element " + i + " of rank " + comm.rank() + " is " + sum + ", not " + (2f * i + 1));
        }
      }
    }
  }
}
