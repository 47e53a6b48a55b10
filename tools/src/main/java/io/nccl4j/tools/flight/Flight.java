package io.nccl4j.tools.flight;

import io.nccl4j.internal.flight.Dump;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
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
    return Commands.of(flags, () -> compare(flags, out, err), out, err).execute(args);
  }

  /**
   * Returns what differs between the ranks whose dumps are in a folder, by communicator, and the
   * files that cannot be read; empty if nothing does and there are none.
   *
   * @throws IOException if there is no dump that can be read
   */
  public static Map<String, List<String>> differences(Path folder) throws IOException {
    LogFiles files = LogFiles.read(List.of(folder));
    Map<String, List<String>> differences = new LinkedHashMap<>();
    for (Comparison comparison : Comparison.all(files.logs().values())) {
      if (!comparison.findings().isEmpty()) {
        differences.put(
            Reports.title(comparison), comparison.findings().stream().map(Finding::text).toList());
      }
    }
    if (!files.unread().isEmpty()) {
      differences.put("dumps", files.unread());
    }
    return differences;
  }

  private static int compare(Flags flags, PrintStream out, PrintStream err) throws IOException {
    for (Path folder : flags.folders) {
      if (!Files.isDirectory(folder)) {
        throw new IllegalArgumentException("'" + folder + "' is not a folder");
      }
    }
    LogFiles files = LogFiles.read(flags.folders);
    List<Comparison> comparisons = Comparison.all(files.logs().values());
    if (flags.json) {
      out.println(JsonTree.text(comparisons.stream().map(Reports::json).toList()));
    } else {
      comparisons.forEach(comparison -> Reports.text(comparison, out));
    }
    if (flags.html != null) {
      OutputFile.write(flags.html, Reports.page(comparisons, files.unread()));
    }
    if (flags.dumps != null) {
      Files.createDirectories(flags.dumps);
      for (Map<String, Object> dump : files.undumped()) {
        Dump.write(dump, flags.dumps);
      }
    }
    files.unread().forEach(each -> err.println("flight: " + each));
    return files.unread().isEmpty() ? Commands.OK : Commands.FAILED;
  }
}
