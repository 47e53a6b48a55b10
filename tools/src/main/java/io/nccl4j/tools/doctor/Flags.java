package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.Within;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The command line. */
@Command(
    name = "doctor",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "scripts/doctor [--json] [--timeout SECONDS]",
    header = "Says whether a collective can run here, and if not, why and what to do.",
    description = {
      "Looks at driver, libraries, GPUs, network interfaces, shared memory, limits, launch variables",
      "and every NCCL_ and NCCL4J_ variable, as a program started in the same way would see them;",
      "then runs one tiny all-reduce on NCCL, in a process of its own, and one on the reference."
    },
    footer = {
      "",
      "Findings are errors (collectives fail), warnings (something will hurt), notes, and what could",
      "not be checked. Each has a line for what it means and one for what to do.",
      "Exit status: 0 a collective can run: the all-reduce on NCCL was right, and nothing else is an",
      "error; 1 it cannot; 2 bad arguments."
    })
final class Flags {
  @Option(names = "--json", description = "print the same as one JSON document")
  boolean json;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "60",
      description = "how long each all-reduce may take, from 1 to 3600; default 60")
  @Within(least = 1, most = 3600)
  int timeout;
}
