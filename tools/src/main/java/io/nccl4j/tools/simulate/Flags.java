package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Bandwidth;
import io.nccl4j.tools.cli.Latency;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import java.nio.file.Path;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** The command line. */
@Command(
    name = "simulate",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis =
        "scripts/simulate [--ranks N] [--nodes N] [--size BYTES] [--plot FILE] [more options]",
    header = "Predicts how long an all-reduce takes on a cluster that is not there.",
    description = {
      "Prices the schedules that the reference backend executes, ring and tree, and a hierarchical",
      "all-reduce made of them, with each of NCCL's protocols. Finds the sizes where one becomes",
      "quicker than another. Nothing is measured."
    },
    footer = {
      "",
      "Bandwidths are of one rank and one direction: 450GB/s, 400Gb/s. Latencies: 5us, 300ns.",
      "Exit status: 0 predicted; 1 the file cannot be written; 2 bad arguments."
    })
final class Flags {
  /** Ten times what anyone has; still priced within seconds. */
  static final int MOST_RANKS = 1_000_000;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "8",
      description = "how many ranks, from 2 to " + MOST_RANKS + "; default 8")
  @Within(least = 2, most = MOST_RANKS)
  int ranks;

  @Option(
      names = "--nodes",
      paramLabel = "N",
      defaultValue = "1",
      description = "on how many nodes, with as many ranks each; default 1")
  @Within(least = 1, most = MOST_RANKS)
  int nodes;

  @Option(
      names = "--size",
      paramLabel = "BYTES",
      converter = Size.class,
      description = "bytes of float32 data of each rank, as 64K or 1G; without it a table of sizes")
  Long size;

  @Option(
      names = "--intra",
      paramLabel = "BANDWIDTH",
      defaultValue = "450GB/s",
      converter = Bandwidths.class,
      description = "what a rank sends within its node; default 450GB/s")
  Bandwidth intra;

  @Option(
      names = "--inter",
      paramLabel = "BANDWIDTH",
      defaultValue = "50GB/s",
      converter = Bandwidths.class,
      description = "what a rank's network card sends to other nodes; default 50GB/s")
  Bandwidth inter;

  @Option(
      names = "--latency",
      paramLabel = "TIME",
      defaultValue = "5us",
      converter = Latencies.class,
      description = "a hop to another node with Simple; default 5us")
  Latency latency;

  @Option(
      names = "--intra-latency",
      paramLabel = "TIME",
      converter = Latencies.class,
      description = "a hop within a node with Simple; default 4/14 of --latency")
  Latency intraLatency;

  @Option(
      names = "--launch",
      paramLabel = "TIME",
      defaultValue = "6.6us",
      converter = Latencies.class,
      description = "what it takes to start an operation; default 6.6us")
  Latency launch;

  @Option(
      names = "--channels",
      paramLabel = "N",
      defaultValue = "16",
      description = "how many channels share out the data, from 1 to 64; default 16")
  @Within(least = 1, most = 64)
  int channels;

  @Option(
      names = "--sweep-ranks",
      paramLabel = "N",
      description = "also the best algorithm for more and more ranks up to N, in nodes as large")
  @Within(least = 2, most = MOST_RANKS)
  Integer sweepRanks;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      converter = OptionValue.Picture.class,
      description =
          "draw time and bus bandwidth against size, and against ranks with --sweep-ranks, as .svg or .png")
  Path plot;

  @Option(names = "--json", description = "print JSON, in bytes and seconds, instead of tables")
  boolean json;

  private static final class Size implements ITypeConverter<Long> {
    @Override
    public Long convert(String text) {
      long bytes = OptionValue.float32Bytes(text);
      if (bytes > Crossover.MOST) {
        throw new TypeConversionException("'" + text + "' is more than 64G");
      }
      return bytes;
    }
  }

  private static final class Bandwidths implements ITypeConverter<Bandwidth> {
    @Override
    public Bandwidth convert(String text) {
      return OptionValue.parsed(text, Bandwidth::parse);
    }
  }

  private static final class Latencies implements ITypeConverter<Latency> {
    @Override
    public Latency convert(String text) {
      return OptionValue.parsed(text, Latency::parse);
    }
  }
}
