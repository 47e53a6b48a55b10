package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line. */
@Command(
    name = "trace",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis =
        "scripts/trace RECORDING... [-o trace.json] [--html page.html] [--with EVENT]...",
    header = "Makes one timeline of what the flight recorder has heard of several ranks.",
    description = {
      "Reads recordings of one or more processes, as java -XX:StartFlightRecording:filename=FILE or",
      "jcmd PID JFR.dump filename=FILE write them, puts them on one clock, and prints a summary."
    },
    footer = {
      "",
      "trace.json opens in https://ui.perfetto.dev and in chrome://tracing; the page needs a browser alone.",
      "Exit status: 0 done; 1 a recording cannot be read or a file not be written; 2 bad arguments."
    })
final class Flags {
  @Parameters(
      arity = "1..*",
      paramLabel = "RECORDING",
      description = "flight recordings, one for each process")
  List<Path> recordings;

  @Option(
      names = {"-o", "--output"},
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = "writes the trace, in Chrome's JSON")
  Path output;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = "writes the timeline as one page without references to others")
  Path html;

  @Option(
      names = "--with",
      paramLabel = "EVENT",
      description =
          "shows events of this type too, by thread, such as a program's own or jdk.ThreadSleep;"
              + " may be given several times")
  Set<String> others = new LinkedHashSet<>();
}
