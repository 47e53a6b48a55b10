package io.nccl4j.tools.ras;

import io.nccl4j.tools.cli.Within;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The command line options. */
@Command(
    name = "ras",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "nccl4j ras [--address HOST:PORT] [--watch SECONDS] [--json] [more options]",
    header = "Shows which ranks of a running NCCL job are late or lost.",
    description = {
      "Asks NCCL's RAS service, which every process of a job runs since NCCL 2.24. For each",
      "communicator: the ranks that do not answer, have left it or report an error, and those that",
      "have called fewer collectives than another rank. NCCL counts each kind of collective, but",
      "neither sends and receives nor captured operations."
    },
    footer = {
      "",
      "All jobs of a user on a host share one address, unless NCCL_RAS_ADDR differs between them;",
      "any of them may answer.",
      "Exit status: 0 success; 1 no answer, or an invalid one; 2 bad arguments."
    })
final class Flags {
  @Option(
      names = "--address",
      paramLabel = "HOST:PORT",
      description = "where the service listens; default NCCL_RAS_ADDR, or localhost:28028")
  String address;

  @Option(
      names = "--watch",
      paramLabel = "SECONDS",
      description = "ask again every SECONDS, until the service no longer answers")
  @Within(least = 1, most = 86_400)
  Integer watch;

  @Option(names = "--json", description = "print JSON, one line for each answer")
  boolean json;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "15",
      description =
          "time limit of an answer, 1 to 3600; default 15. The service itself waits up to 10 s for processes that do not answer")
  @Within(least = 1, most = 3600)
  int timeout;

  @Option(
      names = "--text",
      description =
          "print NCCL's own text instead, also of releases before 2.28.7; that can crash a process of the job while a communicator is being initialized")
  boolean text;
}
