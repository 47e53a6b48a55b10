package io.nccl4j.examples.spark;

import io.nccl4j.tools.quantities.OptionValue;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** The command line. */
@Command(
    name = "spark-fit",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "scripts/spark-fit [--ranks N] [--rows N] [--master MASTER] [more options]",
    header =
        "Fits coefficients to generated data, with the tasks of a Spark barrier stage as ranks.",
    description = {
      "Each rank sums the gradients of its rows, and an all-reduce those of all ranks. The same fit is",
      "then run on one rank and compared."
    },
    footer = {
      "",
      "A GPU for each rank: --conf of spark-submit, see examples/spark/README.md.",
      "Exit status: 0 the fits agree; 1 Spark or a rank failed; 2 bad arguments; 3 the fits differ."
    })
final class Flags {
  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "4",
      converter = Ranks.class,
      description = "how many ranks, each a task of the stage; default 4")
  int ranks;

  @Option(
      names = "--rows",
      paramLabel = "N",
      defaultValue = "100000",
      converter = Rows.class,
      description = "how many rows of data, of all ranks together; default 100000")
  int rows;

  @Option(
      names = "--features",
      paramLabel = "N",
      defaultValue = "20",
      converter = Features.class,
      description = "how many features a row has, at most half as many as rows; default 20")
  int features;

  @Option(
      names = "--steps",
      paramLabel = "N",
      defaultValue = "40",
      converter = Steps.class,
      description = "how many steps of gradient descent; default 40")
  int steps;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      converter = BackendName.class,
      description = "auto (NCCL where Spark gives tasks a GPU), nccl or reference; default auto")
  BackendChoice backend;

  @Option(
      names = "--master",
      paramLabel = "MASTER",
      description =
          "Spark's cluster, such as local[4] or spark://HOST:7077; default that of spark-submit, else"
              + " local-cluster[RANKS,1,1024]: a process for each rank on this machine")
  String master;

  @Option(
      names = "--timeout",
      paramLabel = "SECONDS",
      defaultValue = "60",
      converter = Seconds.class,
      description = "the longest that ranks wait for each other; default 60")
  int timeout;

  @Option(
      names = "--seed",
      paramLabel = "N",
      defaultValue = "1",
      converter = Seed.class,
      description = "what the data is drawn from; default 1")
  int seed;

  @Option(
      names = "--kill-at",
      paramLabel = "STEP",
      converter = Killed.class,
      description =
          "end the process of the last rank before this step, from 0 on, of the first attempt, to see"
              + " Spark try again; not with --master local")
  Integer killAt;

  /** Checks what no option can check alone. */
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
              + ", or the data tells too little of the coefficients");
    }
    if (killAt != null && killAt >= steps) {
      throw new IllegalArgumentException(
          "--kill-at is " + killAt + "; it must be less than --steps, which is " + steps);
    }
  }

  private static final class BackendName implements ITypeConverter<BackendChoice> {
    @Override
    public BackendChoice convert(String text) {
      return switch (text) {
        case "auto" -> BackendChoice.AUTO;
        case "nccl" -> BackendChoice.NCCL;
        case "reference" -> BackendChoice.REFERENCE;
        default ->
            throw new TypeConversionException("'" + text + "' is not auto, nccl or reference");
      };
    }
  }

  /** A whole number within limits. */
  private abstract static class WholeNumber implements ITypeConverter<Integer> {
    private final int least;
    private final int most;

    private WholeNumber(int least, int most) {
      this.least = least;
      this.most = most;
    }

    @Override
    public Integer convert(String text) {
      return OptionValue.whole(text, least, most);
    }
  }

  private static final class Ranks extends WholeNumber {
    private Ranks() {
      super(1, 10_000);
    }
  }

  private static final class Rows extends WholeNumber {
    private Rows() {
      super(1, 1_000_000_000);
    }
  }

  private static final class Features extends WholeNumber {
    private Features() {
      super(1, 100_000);
    }
  }

  private static final class Steps extends WholeNumber {
    private Steps() {
      super(1, 1_000_000);
    }
  }

  private static final class Seconds extends WholeNumber {
    private Seconds() {
      super(1, 86_400);
    }
  }

  private static final class Seed extends WholeNumber {
    private Seed() {
      super(0, Integer.MAX_VALUE);
    }
  }

  private static final class Killed extends WholeNumber {
    private Killed() {
      super(0, 999_999);
    }
  }
}
