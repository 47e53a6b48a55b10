package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line options. */
@Command(
    name = "trace",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis =
        "nccl4j trace RECORDING... [-o trace.json] [--html page.html] [--with EVENT]...",
    header = "Merges flight recordings of several ranks into one timeline.",
    description = {
      "Reads recordings of one or more processes, written by jcmd PID JFR.dump filename=FILE or",
      "java -XX:StartFlightRecording:filename=FILE,jdk.InitialEnvironmentVariable#enabled=false,",
      "aligns their clocks, and prints a summary."
    },
    footer = {
      "",
      "trace.json opens in https://ui.perfetto.dev and chrome://tracing; the page, in any browser.",
      "Exit status: 0 success; 1 a recording cannot be read or a file not written; 2 bad arguments."
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
      description = "write the trace in Chrome's JSON format")
  Path output;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = "write the timeline as a self-contained page")
  Path html;

  @Option(
      names = "--with",
      paramLabel = "EVENT",
      description =
          "also show events of this type, by thread, such as the program's own or jdk.ThreadSleep;"
              + " may be given several times")
  Set<String> others = new LinkedHashSet<>();
}
