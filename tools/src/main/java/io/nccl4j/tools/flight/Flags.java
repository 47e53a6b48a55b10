package io.nccl4j.tools.flight;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line options. */
@Command(
    name = "flight",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "nccl4j flight [FOLDER...] [--json] [--html FILE] [--dumps FOLDER]",
    header = "Compares the last operations of all ranks, and names those that differ.",
    description = {
      "Reads what nccl4j's flight recorder has written: the dumps in the folder that",
      "NCCL4J_FLIGHT_DIR or FlightRecorder.dump names and, of ranks that have none there, the files",
      "of this user's processes on this host, which may be running or have crashed. Prints for each",
      "communicator who is behind, who called something else, with another count or type, or in",
      "another order, and of whom there is nothing."
    },
    footer = {
      "",
      "Without a folder it reads all processes of this user on this host.",
      "Exit status: 0 the logs were read, whatever they contain; 1 there are none, or a file cannot",
      "be read (the others are compared without it) or written; 2 bad arguments."
    })
final class Flags {
  @Parameters(arity = "0..*", paramLabel = "FOLDER", description = "folders with dumps")
  List<Path> folders = new ArrayList<>();

  @Option(names = "--json", description = "print the result as JSON")
  boolean json;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description = "also write it as a self-contained page, with a line for each rank")
  Path html;

  @Option(
      names = "--dumps",
      paramLabel = "FOLDER",
      description =
          "also write dumps of the ranks that have none, which PyTorch's torchfrtrace and this"
              + " command read")
  Path dumps;
}
