package io.nccl4j.reference;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import io.nccl4j.drill.DrillCall;
import io.nccl4j.drill.DrillFault;
import io.nccl4j.drill.Outcome;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * One process of the hang drill. All its cells wait at the same time, each in its own communicator,
 * for a rank that is stopped or killed.
 */
final class DrillRank {
  private static final Duration LIMIT = Duration.ofSeconds(40);
  private static final int COUNT = 8;

  private DrillRank() {}

  /**
   * Runs the cells of one rank, until the test kills its process.
   *
   * @param soon the configuration of the cells whose rank is stopped
   * @param patient the configuration of the cells whose rank is killed
   * @param victim the rank that is stopped and killed
   * @param output prints a line
   */
  static void run(
      Communicator comm,
      CommunicatorConfig soon,
      CommunicatorConfig patient,
      int victim,
      Consumer<String> output)
      throws InterruptedException {
    List<Thread> cells = new ArrayList<>();
    for (DrillFault fault : List.of(DrillFault.STOPPED, DrillFault.DEAD)) {
      for (Operation operation : DrillCall.collectives()) {
        CommunicatorConfig config = fault == DrillFault.STOPPED ? soon : patient;
        Communicator own = comm.split(0, comm.rank(), config);
        Stream stream = own.newStream();
        try (DrillCall warming =
            new DrillCall(Operation.ALL_REDUCE, DataType.INT32, 1, own, stream)) {
          warming.enqueue();
          stream.synchronize(LIMIT);
        }
        DrillCall call = new DrillCall(operation, DataType.INT32, COUNT, own, stream);
        cells.add(
            Thread.ofPlatform()
                .unstarted(() -> output.accept(line(operation, fault, wait(call, own, stream)))));
      }
    }
    output.accept("is ready");
    if (comm.rank() != victim) {
      cells.forEach(Thread::start);
    }
    // If this process exited, the others would see another loss.
    Thread.sleep(Duration.ofMinutes(2));
  }

  private static Outcome wait(DrillCall call, Communicator comm, Stream stream) {
    try {
      return Outcome.of(call, comm, stream, true, LIMIT);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static String prefix(Operation operation, DrillFault fault) {
    return "in " + operation.method() + ", rank 2 " + fault + ": ";
  }

  private static String line(Operation operation, DrillFault fault, Outcome outcome) {
    return prefix(operation, fault)
        + outcome.text()
        + "; "
        + outcome.millis()
        + " ms, at "
        + System.currentTimeMillis();
  }

  /**
   * Returns the outcome of a cell that a rank has printed.
   *
   * @param since the time of the fault, or 0 to use the duration of the call
   */
  static Outcome outcome(
      RankProcesses processes, int rank, Operation operation, DrillFault fault, long since) {
    String prefix = prefix(operation, fault);
    String line = processes.await(rank, prefix);
    String result = line.substring(line.indexOf(prefix) + prefix.length());
    String text = result.substring(0, result.indexOf("; "));
    String times = result.substring(text.length() + "; ".length());
    long took = Long.parseLong(times.substring(0, times.indexOf(' ')));
    long at = Long.parseLong(times.substring(times.lastIndexOf(' ') + 1));
    return new Outcome(text, since == 0 ? took : at - since);
  }
}
