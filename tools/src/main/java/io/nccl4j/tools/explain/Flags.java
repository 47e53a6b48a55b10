package io.nccl4j.tools.explain;

import io.nccl4j.schedule.Protocol;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line options. */
@Command(
    name = "explain",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis =
        "nccl4j explain all_reduce [--algo ring|tree] [--ranks N] [--html FILE] [more options]",
    header = "Explains an all-reduce: what each rank sends to which rank, and what it then holds.",
    description = {
      "Prints the schedule that the reference backend executes. Without --size it is a toy",
      "example: one chunk for each rank of a ring, one for each of the two trees. With --size it",
      "is the schedule for a buffer of that size, in channels, loops, chunks and slices."
    },
    footer = {
      "",
      "A value is written as the ranks whose data it contains, in order of reduction: 1+2+0.",
      "Exit status: 0 explained; 1 the file cannot be written; 2 bad arguments."
    })
final class Flags {
  /** The most ranks that fit a picture. */
  static final int MAX_RANKS = 64;

  @Parameters(arity = "1", paramLabel = "COLLECTIVE", description = "all_reduce")
  String collective;

  @Option(names = "--algo", paramLabel = "ring|tree", description = "the algorithm; default both")
  Algorithm algorithm;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "4",
      description = "number of ranks, from 1 to " + MAX_RANKS + "; default 4")
  @Within(least = 1, most = MAX_RANKS)
  int ranks;

  @Option(
      names = "--size",
      paramLabel = "BYTES",
      description = "bytes of float32 data of each rank, as 64K or 16M; default a toy example")
  Long size;

  @Option(
      names = "--channels",
      paramLabel = "N",
      description = "number of channels, from 1 to 64; default 2; with --size")
  @Within(least = 1, most = 64)
  Integer channels;

  @Option(
      names = "--protocol",
      paramLabel = "simple|ll|ll128",
      description = "NCCL's protocol, which determines the chunk size; default simple; with --size")
  Protocol protocol;

  @Option(
      names = "--order",
      paramLabel = "R",
      split = ",",
      splitSynopsisLabel = ",",
      description = "the ranks in the order of the ring; default 0,1,2,...")
  @Within(least = 0, most = MAX_RANKS - 1)
  List<Integer> order = List.of();

  @Option(
      names = "--ranks-per-node",
      paramLabel = "N",
      description = "number of ranks per node, which form a chain in a tree; default 1")
  @Within(least = 1, most = MAX_RANKS)
  Integer ranksPerNode;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description = "write a self-contained page that animates the steps, instead of text")
  Path html;

  /**
   * Checks the combination of options; an option without effect is rejected.
   *
   * @throws IllegalArgumentException if the options cannot be combined
   */
  void check() {
    if (!collective.replaceAll("[-_]", "").equalsIgnoreCase("allreduce")) {
      throw new IllegalArgumentException(
          "'" + collective + "' cannot be explained; all_reduce can");
    }
    if (size != null && (size <= 0 || size % Algorithm.ELEMENT_BYTES != 0)) {
      throw new IllegalArgumentException(
          "--size is %d; it must be a positive multiple of 4 bytes, the size of a float32"
              .formatted(size));
    }
    if (size == null && channels != null) {
      throw new IllegalArgumentException("--channels is for --size; the toy has one of each kind");
    }
    if (size == null && protocol != null) {
      throw new IllegalArgumentException(
          "--protocol is for --size; the toy's chunks have no other");
    }
    if (algorithm == Algorithm.RING && ranksPerNode != null) {
      throw new IllegalArgumentException("--ranks-per-node is for trees, and --algo is ring");
    }
    if (algorithm == Algorithm.TREE && !order.isEmpty()) {
      throw new IllegalArgumentException("--order is for the ring, and --algo is tree");
    }
    if (!order.isEmpty() && !IntStream.range(0, ranks).boxed().toList().equals(sorted(order))) {
      throw new IllegalArgumentException(
          "--order is %s; it must have every rank from 0 to %d once"
              .formatted(
                  order.stream().map(String::valueOf).collect(Collectors.joining(",")), ranks - 1));
    }
  }

  private static List<Integer> sorted(List<Integer> numbers) {
    return numbers.stream().sorted().toList();
  }
}
