package io.nccl4j.tools.perf.sweep;

import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import io.nccl4j.tools.perf.Algorithm;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line: a few own flags, and those of the bandwidth command. */
@Command(
    name = "sweep",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "nccl4j sweep [COLLECTIVE] [flags] [flags of nccl4j perf]",
    header = "Measures every algorithm with every protocol, and what the automatic choice costs.",
    description = {
      "The default COLLECTIVE is all_reduce. The reference backend has ring, tree and direct, for an",
      "all_reduce in one process. nccl4j perf measures each choice in a separate process; if NCCL does",
      "not have one, the table says n/a and why. Needs NCCL 2.28.3 or later.",
      "Without -b, -e, -i and -f: -b 1K -e 64M -f 4."
    },
    footer = {
      "",
      "nccl4j perf --help lists its flags; all but -J, --html, --compare, --algo, --proto and",
      "--show-algorithm are passed on.",
      "Exit status: 0 measured, even if some choices failed; 1 nothing was measured, or a file cannot",
      "be written; 2 bad arguments; 3 wrong data."
    })
final class Flags {
  private static final List<Algorithm> NCCL =
      List.of(Algorithm.RING, Algorithm.TREE, Algorithm.NVLS);
  private static final List<Algorithm> REFERENCE =
      List.of(Algorithm.RING, Algorithm.TREE, Algorithm.DIRECT);
  private static final List<NcclProtocol> PROTOCOLS =
      List.of(NcclProtocol.SIMPLE, NcclProtocol.LL128, NcclProtocol.LL);

  private static final int MAX_LIMIT = 24 * 60 * 60;

  @Parameters(hidden = true)
  List<String> others = new ArrayList<>();

  @Option(
      names = "--algo",
      paramLabel = "LIST",
      split = ",",
      splitSynopsisLabel = ",",
      description =
          "ring, tree, nvls, nvls_tree, collnet_direct, collnet_chain, pat; default ring,tree,nvls. On the reference backend ring, tree, direct; default all")
  List<Algorithm> algorithms = List.of();

  @Option(
      names = "--proto",
      paramLabel = "LIST",
      split = ",",
      splitSynopsisLabel = ",",
      description = "simple, ll128, ll; default all. Not on the reference backend")
  List<NcclProtocol> protocols = List.of();

  @Option(
      names = "--rounds",
      paramLabel = "N",
      defaultValue = "3",
      description = "rounds in which all choices are measured; the quickest time counts; default 3")
  @Within(least = 1, most = 1000)
  int rounds;

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      defaultValue = "600",
      description = "time limit for one choice in a round; default 600")
  @Within(least = 1, most = MAX_LIMIT)
  int limit;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description = "write charts and tables as one self-contained page")
  Path html;

  @Option(
      names = "--csv",
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = "write CSV with a line per choice and size")
  Path csv;

  @Option(
      names = "--json",
      paramLabel = "FILE",
      converter = OptionValue.Output.class,
      description = "write everything as JSON")
  Path json;

  /** Returns the arguments for the bandwidth command, without default sizes. */
  List<String> perfArguments() {
    List<String> arguments = new ArrayList<>(others);
    if (arguments.isEmpty() || arguments.getFirst().startsWith("-")) {
      arguments.addFirst("all_reduce");
    }
    return arguments;
  }

  /**
   * Returns the choices on a backend, without the automatic one.
   *
   * @throws IllegalArgumentException if the backend lacks a requested algorithm or protocol
   */
  List<SweepChoice> choices(String backend) {
    boolean reference = backend.equals("reference");
    for (Algorithm algorithm : algorithms) {
      if (algorithm == Algorithm.AUTO) {
        throw new IllegalArgumentException("--algo has auto, which is always measured");
      }
      if (!algorithm.on(backend)) {
        throw new IllegalArgumentException(
            "--algo has %s, which the %s backend does not have"
                .formatted(algorithm.label(), backend));
      }
    }
    if (reference && !protocols.isEmpty()) {
      throw new IllegalArgumentException(
          "--proto is given, but the reference backend has no protocols to choose from");
    }
    List<Algorithm> defaults = reference ? REFERENCE : NCCL;
    return SweepChoice.all(
        backend,
        algorithms.isEmpty() ? defaults : algorithms.stream().distinct().toList(),
        protocols.isEmpty() ? PROTOCOLS : protocols.stream().distinct().toList());
  }
}
