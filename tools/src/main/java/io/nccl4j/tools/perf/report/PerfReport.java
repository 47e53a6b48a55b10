package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.cli.OptionValue;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command that compares earlier runs of the bandwidth command. */
public final class PerfReport {
  /** The command line. */
  @Command(
      name = "report",
      sortOptions = false,
      usageHelpWidth = 100,
      customSynopsis = "nccl4j report RESULT.json ... --html FILE",
      header = "Compares earlier runs of nccl4j perf in one page.",
      description = {
        "Reads files written by nccl4j perf -J. Each run has its own colour; the first is the baseline."
      },
      footer = {"", "Exit status: 0 written; 1 the file cannot be written; 2 bad arguments."})
  static final class Flags {
    @Parameters(arity = "1..*", paramLabel = "RESULT.json", description = "a file written by -J")
    List<Path> files;

    @Option(
        names = "--label",
        paramLabel = "TEXT",
        description = "the name of a run; repeat once per run, in order; default: the files' names")
    List<String> labels = List.of();

    @Option(
        names = "--html",
        paramLabel = "FILE",
        required = true,
        converter = OptionValue.Page.class,
        description = "write charts and tables as one self-contained page")
    Path html;
  }

  private PerfReport() {}

  /**
   * Runs the command and exits with its status.
   *
   * @param args the arguments
   */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> write(flags, runs(flags), out), out, err).execute(args);
  }

  private static List<PerfRun> runs(Flags flags) {
    if (!flags.labels.isEmpty() && flags.labels.size() != flags.files.size()) {
      throw new IllegalArgumentException(
          "--label is given %s for %s; give one per file, or none"
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

  private static int write(Flags flags, List<PerfRun> runs, PrintStream out) throws IOException {
    RunReport.writePage(runs, flags.html);
    out.println(flags.html);
    return Commands.OK;
  }
}
