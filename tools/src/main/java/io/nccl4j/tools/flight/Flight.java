package io.nccl4j.tools.flight;

import io.nccl4j.internal.flight.Dump;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The {@code flight} command. */
public final class Flight {
  private Flight() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> compare(flags, out), out, err).execute(args);
  }

  /**
   * Returns what differs between the ranks whose dumps are in a folder, by communicator; empty if
   * nothing does.
   *
   * @throws IOException if there is no dump, or one cannot be read
   */
  public static Map<String, List<String>> differences(Path folder) throws IOException {
    Map<String, List<String>> differences = new LinkedHashMap<>();
    for (Map<Integer, RankLog> logs : LogFiles.read(List.of(folder)).values()) {
      Comparison comparison = Comparison.of(logs.values());
      if (!comparison.findings().isEmpty()) {
        differences.put(
            Reports.title(comparison), comparison.findings().stream().map(Finding::text).toList());
      }
    }
    return differences;
  }

  private static int compare(Flags flags, PrintStream out) throws IOException {
    for (Path folder : flags.folders) {
      if (!Files.isDirectory(folder)) {
        throw new IllegalArgumentException("'" + folder + "' is not a folder");
      }
    }
    List<Comparison> comparisons = new ArrayList<>();
    for (Map<Integer, RankLog> logs : LogFiles.read(flags.folders).values()) {
      comparisons.add(Comparison.of(logs.values()));
      if (flags.dumps != null) {
        Files.createDirectories(flags.dumps);
        for (RankLog log : logs.values()) {
          Dump.write(tree(log), flags.dumps);
        }
      }
    }
    comparisons.sort(Comparator.comparingLong(Comparison::lastCall).reversed());
    if (flags.json) {
      out.println(JsonTree.text(comparisons.stream().map(Reports::json).toList()));
    } else {
      comparisons.forEach(comparison -> Reports.text(comparison, out));
    }
    if (flags.html != null) {
      OutputFile.write(flags.html, Reports.page(comparisons));
    }
    return Commands.OK;
  }

  private static Map<String, Object> tree(RankLog log) {
    Map<String, Object> tree = new LinkedHashMap<>();
    log.tree().forEach((name, value) -> tree.put((String) name, value));
    return tree;
  }
}
