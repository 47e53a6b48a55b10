package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.Count;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command that shows earlier runs beside each other: from a command line to an exit status. */
public final class PerfReport {
  private final PrintStream out;
  private final PrintStream err;

  /** The command line. */
  @Command(
      name = "perf-report",
      sortOptions = false,
      usageHelpWidth = 100,
      customSynopsis = "scripts/perf-report RESULT.json ... --html FILE | --plot FILE",
      header = "Shows earlier runs of scripts/perf in one picture, beside each other.",
      description = {
        "Reads what scripts/perf -J has written. A colour is a run; the first is what the others are",
        "compared with."
      },
      footer = {"", "Exit status: 0 written; 1 a file cannot be written; 2 bad arguments."})
  static final class Flags {
    @Parameters(arity = "1..*", paramLabel = "RESULT.json", description = "what -J has written")
    List<Path> files;

    @Option(
        names = "--label",
        paramLabel = "TEXT",
        description =
            "what a run is called, one for each, in their order; default: the files' names")
    List<String> labels = List.of();

    @Mixin ReportOptions output;
  }

  /**
   * Makes a command.
   *
   * @param out where the names of the files go
   * @param err where messages go
   */
  PerfReport(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /**
   * Runs the command and ends the process with its status.
   *
   * @param args the command line
   */
  public static void main(String[] args) {
    Commands.exit((out, err) -> new PerfReport(out, err).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> write(flags, runs(flags)), out, err).execute(args);
  }

  private static List<PerfRun> runs(Flags flags) {
    if (flags.output.html() == null && flags.output.plot() == null) {
      throw new IllegalArgumentException("neither --html nor --plot says what to write");
    }
    if (!flags.labels.isEmpty() && flags.labels.size() != flags.files.size()) {
      throw new IllegalArgumentException(
          "--label is given %s for %s; each has one, or none"
              .formatted(
                  Count.of(flags.labels.size(), "time"), Count.of(flags.files.size(), "file")));
    }
    List<PerfRun> runs = new ArrayList<>();
    for (int i = 0; i < flags.files.size(); i++) {
      Path file = flags.files.get(i);
      try {
        runs.add(
            flags.labels.isEmpty() ? PerfRun.read(file) : PerfRun.read(file, flags.labels.get(i)));
      } catch (IOException e) {
        throw new IllegalArgumentException(e.getMessage(), e);
      }
    }
    return runs;
  }

  private int write(Flags flags, List<PerfRun> runs) throws IOException {
    if (flags.output.plot() != null) {
      RunReport.writePicture(runs, flags.output.plot());
      out.println(flags.output.plot());
    }
    if (flags.output.html() != null) {
      RunReport.writePage(runs, flags.output.html());
      out.println(flags.output.html());
    }
    return Commands.OK;
  }
}
