package io.nccl4j.tools.ras;

import io.nccl4j.NcclResult;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.tools.cli.Count;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.SortedMap;
import java.util.stream.Collectors;

/** Prints a status: a table for each communicator of the ranks that need attention. */
final class TextReport {
  private static final int SUCCESS = 0;
  private static final int IN_PROGRESS = 7;

  private record Row(int rank, String host, int pid, int device, String state) {}

  private TextReport() {}

  static void write(RasStatus status, PrintStream out) {
    out.printf(
        "NCCL %s, %s, %s, collected in %.3f s%n",
        status.ncclVersion(),
        status.timestamp(),
        Count.of(status.communicators().size(), "communicator"),
        status.collectionSeconds());
    if (status.timeouts() > 0) {
      out.printf(
          "%s of processes that did not answer: data is missing%n",
          Count.of(status.timeouts(), "time-out"));
    }
    status.communicators().forEach(communicator -> write(communicator, out));
    out.println();
  }

  /** Returns the hash as NCCL's log has it. */
  static String hash(RasStatus.Communicator communicator) {
    return "0x%x".formatted(communicator.hash());
  }

  private static void write(RasStatus.Communicator communicator, PrintStream out) {
    SortedMap<String, Long> most = communicator.mostCalls();
    String calls =
        most.entrySet().stream()
            .filter(kind -> kind.getValue() > 0)
            .map(kind -> kind.getKey() + " " + kind.getValue())
            .collect(Collectors.joining(", "));
    out.printf(
        "%ncommunicator %s: %s, %s%n",
        hash(communicator),
        Count.of(communicator.size(), "rank"),
        calls.isEmpty() ? "no collective called" : calls);
    List<Row> rows = new ArrayList<>();
    for (RasStatus.MissingRank rank : communicator.missingRanks()) {
      rows.add(new Row(rank.rank(), rank.host(), rank.pid(), rank.cudaDevice(), state(rank)));
    }
    for (RasStatus.Rank rank : communicator.ranks()) {
      String state = state(rank, most);
      if (!state.isEmpty()) {
        rows.add(new Row(rank.rank(), rank.host(), rank.pid(), rank.cudaDevice(), state));
      }
    }
    // RAS may be turned off in their processes.
    int unlisted =
        communicator.size() - communicator.ranks().size() - communicator.missingRanks().size();
    if (unlisted > 0) {
      out.printf("  %s not known to the service%n", Count.of(unlisted, "rank"));
    }
    if (rows.isEmpty()) {
      if (unlisted <= 0) {
        out.println("  all ranks answer and have called the same collectives");
      }
      return;
    }
    int width = rows.stream().mapToInt(row -> row.host().length()).max().orElseThrow();
    String format = "  %5s  %-" + Math.max(width, 4) + "s  %8s  %3s  %s%n";
    out.printf(format, "rank", "host", "process", "GPU", "");
    rows.stream()
        .sorted(Comparator.comparingInt(Row::rank))
        .forEach(
            row ->
                out.printf(format, row.rank(), row.host(), row.pid(), row.device(), row.state()));
  }

  private static String state(RasStatus.MissingRank rank) {
    if (rank.consideredDead()) {
      return "considered dead";
    }
    if (rank.pid() < 0) {
      return "not known to the service";
    }
    return rank.unresponsive() ? "does not answer" : "has left the communicator";
  }

  /** Returns what distinguishes a rank that answers; empty if nothing does. */
  private static String state(RasStatus.Rank rank, SortedMap<String, Long> most) {
    List<String> states = new ArrayList<>();
    if (rank.initResult() == IN_PROGRESS) {
      states.add("is being initialized");
    } else if (rank.initResult() != SUCCESS) {
      states.add("initialization failed with " + NcclResult.ofCode(rank.initResult()));
    }
    if (rank.asyncResult() != SUCCESS && rank.asyncResult() != IN_PROGRESS) {
      states.add("reports " + NcclResult.ofCode(rank.asyncResult()));
    }
    if (rank.aborting()) {
      states.add("is being aborted");
    } else if (rank.finalizing() || rank.destroying()) {
      states.add("is being closed");
    }
    rank.calls()
        .forEach(
            (kind, count) -> {
              if (count < most.get(kind)) {
                states.add("%s %d of %d".formatted(kind, count, most.get(kind)));
              }
            });
    return String.join("; ", states);
  }
}
