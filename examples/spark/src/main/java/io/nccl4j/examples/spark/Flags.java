package io.nccl4j.examples.spark;

import io.nccl4j.tools.cli.Within;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** The command-line options. */
@Command(
    name = "spark-fit",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "examples/spark/run [--ranks N] [--rows N] [--master MASTER] [more options]",
    header =
        "Fits coefficients to generated data, with the tasks of a Spark barrier stage as ranks.",
    description = {
      "Each rank sums the gradients of its rows, and an all-reduce sums those of all ranks. The",
      "same fit is then run on one rank and compared."
    },
    footer = {
      "",
      "For a GPU per rank use --conf of spark-submit, see examples/spark/README.md.",
      "Exit status: 0 the fits agree; 1 Spark or a rank failed; 2 bad arguments; 3 the fits differ."
    })
final class Flags {
  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "4",
      description = "number of ranks, each a task of the stage; default 4")
  @Within(least = 1, most = 10_000)
  int ranks;

  @Option(
      names = "--rows",
      paramLabel = "N",
      defaultValue = "100000",
      description = "number of rows of all ranks together; default 100000")
  @Within(least = 1, most = 1_000_000_000)
  int rows;

  @Option(
      names = "--features",
      paramLabel = "N",
      defaultValue = "20",
      description = "number of features of a row, at most half the number of rows; default 20")
  @Within(least = 1, most = 100_000)
  int features;

  @Option(
      names = "--steps",
      paramLabel = "N",
      defaultValue = "40",
      description = "number of steps of gradient descent; default 40")
  @Within(least = 1, most = 1_000_000)
  int steps;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description = "auto (NCCL if Spark assigns GPUs to tasks), nccl or reference; default auto")
  BackendChoice backend;

  @Option(
      names = "--master",
      paramLabel = "MASTER",
      description =
          "Spark's master, such as local[4] or spark://HOST:7077; default: that of spark-submit,"
              + " else local-cluster[RANKS,1,1024], a process for each rank on this machine")
  String master;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "60",
      description = "how long ranks wait for each other; default 60")
  @Within(least = 1, most = 86_400)
  int timeout;

  @Option(
      names = "--seed",
      paramLabel = "N",
      defaultValue = "1",
      description = "seed of the generated data; default 1")
  @Within(least = 0, most = Integer.MAX_VALUE)
  int seed;

  @Option(
      names = "--kill-at",
      paramLabel = "STEP",
      description =
          "end the process of the last rank before this step, counted from 0, in the first attempt,"
              + " to see Spark retry; not with --master local")
  @Within(least = 0, most = 999_999)
  Integer killAt;

  /** Checks combinations of options. */
  void check() {
    if (rows < ranks) {
      throw new IllegalArgumentException(
          "--rows is " + rows + ", fewer than --ranks " + ranks + "; each rank needs a row");
    }
    if (rows < 2 * features) {
      throw new IllegalArgumentException(
          "--rows is "
              + rows
              + "; it must be at least twice --features, which is "
              + features
              + ", to determine the coefficients");
    }
    if (killAt != null && killAt >= steps) {
      throw new IllegalArgumentException(
          "--kill-at is " + killAt + "; it must be less than --steps, which is " + steps);
    }
  }
}
