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
 * One process of the hang drill, whose cells all wait at the same time, in communicators of their
 * own: for a rank that is stopped, and for its end.
 */
final class DrillRank {
  private static final Duration LIMIT = Duration.ofSeconds(40);
  private static final int COUNT = 8;

  private DrillRank() {}

  /**
   * Drills one rank, whose process the test ends.
   *
   * @param soon the configuration of the cells whose rank is stopped
   * @param patient that of the cells whose rank is dead
   * @param victim the rank that only waits for its end
   * @param says prints a line
   */
  static void run(
      Communicator comm,
      CommunicatorConfig soon,
      CommunicatorConfig patient,
      int victim,
      Consumer<String> says)
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
                .unstarted(() -> says.accept(line(operation, fault, wait(call, own, stream)))));
      }
    }
    says.accept("is ready");
    if (comm.rank() != victim) {
      cells.forEach(Thread::start);
    }
    // Its own end would be another loss to those that still look.
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
   * Returns what a rank has said of a cell.
   *
   * @param since when the fault came, or 0 where the call's own time counts
   */
  static Outcome outcome(
      RankProcesses processes, int rank, Operation operation, DrillFault fault, long since) {
    String prefix = prefix(operation, fault);
    String line = processes.await(rank, prefix);
    String said = line.substring(line.indexOf(prefix) + prefix.length());
    String text = said.substring(0, said.indexOf("; "));
    String times = said.substring(text.length() + "; ".length());
    long took = Long.parseLong(times.substring(0, times.indexOf(' ')));
    long at = Long.parseLong(times.substring(times.lastIndexOf(' ') + 1));
    return new Outcome(text, since == 0 ? took : at - since);
  }
}
