package io.nccl4j.emulation;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;

/**
 * One rank in its own process, for {@link EmulatedShrinkTest}: {@code ShrinkingRank DIRECTORY RANK
 * SIZE}. After one all-reduce the last rank makes no more calls until its input ends; the others
 * continue without it.
 */
public final class ShrinkingRank {
  private ShrinkingRank() {}

  /**
   * Runs the rank; survivors print the sum of their child, and that they have closed its parent.
   */
  public static void main(String[] arguments) throws IOException {
    int rank = Integer.parseInt(arguments[1]);
    int last = Integer.parseInt(arguments[2]) - 1;
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60)).withDevice(rank);
    Backend backend = Backend.nccl();
    Communicator comm =
        Rendezvous.files(Path.of(arguments[0]), RankInfo.of(rank, last + 1))
            .newCommunicator(backend, config);
    Stream stream = comm.newStream();
    Buffer value = comm.newBuffer(DataType.INT32, 1);
    comm.allReduce(value, value, ReduceOp.SUM, stream);
    stream.synchronize();
    if (rank == last) {
      System.in.read();
      Runtime.getRuntime().halt(0);
    }
    comm.allReduce(value, value, ReduceOp.SUM, stream);
    try (Communicator rest = comm.shrink(Set.of(last), ShrinkMode.ABORT_FIRST);
        Stream other = rest.newStream();
        Buffer ones = rest.newBuffer(DataType.INT32, 1)) {
      ones.copyFromAsync(new int[] {1}, other);
      rest.allReduce(ones, ones, ReduceOp.SUM, other);
      int[] sum = new int[1];
      ones.copyTo(sum, other);
      System.out.println("sum " + sum[0]);
    }
    comm.close();
    System.out.println("closed");
    // The stream, whose operation was aborted, and the backend end with the process.
    Runtime.getRuntime().halt(0);
  }
}
