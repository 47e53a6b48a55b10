package io.nccl4j.tools.ras;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.ras.RasClient;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.io.PrintStream;
import java.io.StringWriter;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.SortedMap;

/** The {@code ras} command. */
public final class Ras {
  private Ras() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> show(flags, out), out, err).execute(args);
  }

  private static int show(Flags flags, PrintStream out) throws IOException, InterruptedException {
    if (flags.json && flags.text) {
      throw new IllegalArgumentException("--json and --text cannot be used together");
    }
    String address =
        Objects.requireNonNullElseGet(
            flags.address,
            () -> System.getenv().getOrDefault("NCCL_RAS_ADDR", RasClient.DEFAULT_ADDRESS));
    RasClient client = RasClient.of(address);
    ask(client, flags, out);
    while (flags.watch != null && !out.checkError()) {
      Thread.sleep(Duration.ofSeconds(flags.watch));
      ask(client, flags, out);
    }
    return Commands.OK;
  }

  private static void ask(RasClient client, Flags flags, PrintStream out) throws IOException {
    Duration timeout = Duration.ofSeconds(flags.timeout);
    if (flags.text) {
      out.print(client.text(true, timeout));
      return;
    }
    RasStatus status = client.status(timeout);
    if (flags.json) {
      StringWriter line = new StringWriter();
      JsonTree.write(line, json(status));
      out.println(line);
    } else {
      TextReport.write(status, out);
    }
  }

  private static Object json(RasStatus status) {
    return object(
        "nccl_version", status.ncclVersion(),
        "timestamp", status.timestamp(),
        "collection_seconds", status.collectionSeconds(),
        "timeouts", status.timeouts(),
        "communicators", status.communicators().stream().map(Ras::json).toList());
  }

  private static Object json(RasStatus.Communicator communicator) {
    SortedMap<String, Long> most = communicator.mostCalls();
    return object(
        "hash", TextReport.hash(communicator),
        "size", communicator.size(),
        "calls", most,
        "ranks", communicator.ranks().stream().map(rank -> json(rank, most)).toList(),
        "missing_ranks", communicator.missingRanks().stream().map(Ras::json).toList());
  }

  private static Object json(RasStatus.Rank rank, SortedMap<String, Long> most) {
    Map<String, Object> behind = new LinkedHashMap<>();
    rank.calls()
        .forEach(
            (kind, count) -> {
              if (count < most.get(kind)) {
                behind.put(kind, most.get(kind) - count);
              }
            });
    return object(
        "rank", rank.rank(),
        "host", rank.host(),
        "pid", rank.pid(),
        "cuda_device", rank.cudaDevice(),
        "nvml_device", rank.nvmlDevice(),
        "init_result", rank.initResult(),
        "async_result", rank.asyncResult(),
        "finalizing", rank.finalizing(),
        "destroying", rank.destroying(),
        "aborting", rank.aborting(),
        "calls", rank.calls(),
        "behind", behind);
  }

  private static Object json(RasStatus.MissingRank rank) {
    return object(
        "rank", rank.rank(),
        "host", rank.host(),
        "pid", rank.pid(),
        "cuda_device", rank.cudaDevice(),
        "nvml_device", rank.nvmlDevice(),
        "unresponsive", rank.unresponsive(),
        "considered_dead", rank.consideredDead());
  }
}
