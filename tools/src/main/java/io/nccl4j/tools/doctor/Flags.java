package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import java.nio.file.Path;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The command line options. */
@Command(
    name = "doctor",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "nccl4j doctor [--json] [--html FILE] [--flight FOLDER] [--timeout SECONDS]",
    header = "Reports whether a collective can run here and, if not, why and what to do.",
    description = {
      "Checks driver, libraries, GPUs, network interfaces, shared memory, limits, launch variables",
      "and every NCCL_ and NCCL4J_ variable, as a program started in the same way would see them;",
      "then runs a small all-reduce on NCCL, in a separate process, and one on the reference."
    },
    footer = {
      "",
      "Findings are errors (collectives fail), warnings (collectives may fail or be slow, or a",
      "setting has no effect), notes, and what could not be checked. Each has a line for what it",
      "means and one for what to do.",
      "Exit status: 0 a collective can run: the all-reduce on NCCL was correct and no finding is",
      "an error; 1 it cannot; 2 bad arguments."
    })
final class Flags {
  @Option(names = "--json", description = "print the report as JSON")
  boolean json;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description = "also write the report as a self-contained page")
  Path html;

  @Option(
      names = "--flight",
      paramLabel = "FOLDER",
      description =
          "also explain why a job hung, from the dumps of its flight recorders (NCCL4J_FLIGHT_DIR)")
  Path flight;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "60",
      description = "time limit of each all-reduce, 1 to 3600; default 60")
  @Within(least = 1, most = 3600)
  int timeout;
}
