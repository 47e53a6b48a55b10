package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Bandwidth;
import io.nccl4j.tools.cli.Latency;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import java.nio.file.Path;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The command line options. */
@Command(
    name = "simulate",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis =
        "nccl4j simulate [--ranks N] [--nodes N] [--size BYTES] [--html FILE] [more options]",
    header = "Predicts the time of an all-reduce on a hypothetical cluster.",
    description = {
      "Estimates ring and tree, whose schedules the reference backend executes, and a hierarchical",
      "all-reduce made of them, with each protocol of NCCL. Finds the sizes at which one becomes",
      "faster than another. Nothing is measured."
    },
    footer = {
      "",
      "Bandwidths are per rank and direction: 450GB/s, 400Gb/s. Latencies: 5us, 300ns.",
      "Exit status: 0 success; 1 the file cannot be written; 2 bad arguments."
    })
final class Flags {
  /** Ten times the largest cluster; the estimates still take only seconds. */
  static final int MAX_RANKS = 1_000_000;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "8",
      description = "number of ranks, from 2 to " + MAX_RANKS + "; default 8")
  @Within(least = 2, most = MAX_RANKS)
  int ranks;

  @Option(
      names = "--nodes",
      paramLabel = "N",
      defaultValue = "1",
      description = "number of nodes, with the same number of ranks each; default 1")
  @Within(least = 1, most = MAX_RANKS)
  int nodes;

  @Option(
      names = "--size",
      paramLabel = "BYTES",
      description = "bytes of float32 data of each rank, as 64K or 1G; default a table of sizes")
  Long size;

  @Option(
      names = "--intra",
      paramLabel = "BANDWIDTH",
      defaultValue = "450GB/s",
      description = "bandwidth of a rank within its node; default 450GB/s")
  Bandwidth intra;

  @Option(
      names = "--inter",
      paramLabel = "BANDWIDTH",
      defaultValue = "50GB/s",
      description = "bandwidth of a rank's network card to other nodes; default 50GB/s")
  Bandwidth inter;

  @Option(
      names = "--latency",
      paramLabel = "TIME",
      defaultValue = "5us",
      description = "latency of a hop to another node with Simple; default 5us")
  Latency latency;

  @Option(
      names = "--intra-latency",
      paramLabel = "TIME",
      description = "latency of a hop within a node with Simple; default 4/14 of --latency")
  Latency intraLatency;

  @Option(
      names = "--launch",
      paramLabel = "TIME",
      defaultValue = "6.6us",
      description = "time to start an operation; default 6.6us")
  Latency launch;

  @Option(
      names = "--channels",
      paramLabel = "N",
      defaultValue = "16",
      description = "number of channels, from 1 to 64; default 16")
  @Within(least = 1, most = 64)
  int channels;

  @Option(
      names = "--sweep-ranks",
      paramLabel = "N",
      description = "also print the best algorithm for up to N ranks, with nodes of the same size")
  @Within(least = 2, most = MAX_RANKS)
  Integer sweepRanks;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description =
          "also write charts of time and bus bandwidth by size, and with --sweep-ranks by ranks, as a self-contained page")
  Path html;

  @Option(names = "--json", description = "print JSON, in bytes and seconds, instead of tables")
  boolean json;
}
