package io.nccl4j.examples.spark;

import io.nccl4j.tools.cli.Commands;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;

/** The {@code spark-fit} command. */
public final class SparkFit {
  /** The exit status if the fits differ. */
  static final int WRONG = 3;

  private final PrintStream out;
  private final PrintStream err;

  /**
   * Creates a command.
   *
   * @param out receives the report
   * @param err receives messages
   */
  SparkFit(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> new SparkFit(out, err).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> checkedFit(flags), out, err).execute(args);
  }

  private int checkedFit(Flags flags) {
    flags.check();
    return fit(flags, Cluster.settings(flags));
  }

  private int fit(Flags flags, SparkConf settings) {
    try (JavaSparkContext context = new JavaSparkContext(settings)) {
      context.sc().addSparkListener(new Attempts(err));
      return fit(flags, context.sc()) ? Commands.OK : WRONG;
    } catch (Exception e) {
      // Spark throws undeclared checked exceptions, since Scala declares none.
      err.println("spark-fit: " + reason(String.valueOf(e.getMessage()), settings));
      return Commands.FAILED;
    }
  }

  /** Returns why a fit failed; adds the master, which Spark's message of a lost master lacks. */
  static String reason(String message, SparkConf settings) {
    String master = settings.get("spark.master");
    boolean stopped = message.matches("(?s).*(SparkContext (has been|was) shut|stopped Spark).*");
    return stopped && !master.startsWith("local")
        ? "Spark stopped: its master " + master + " could not be reached or was lost"
        : Attempts.withoutStack(message);
  }

  private boolean fit(Flags flags, SparkContext context) {
    LeastSquares data = new LeastSquares(flags.rows, flags.features, flags.seed);
    Duration timeout = Duration.ofSeconds(flags.timeout);
    int killAt = flags.killAt == null ? Fit.NEVER : flags.killAt;
    out.printf("spark %s, java %s, %s%n%n", context.version(), Runtime.version(), context.master());
    List<RankFit> ranks =
        BarrierStage.run(
            data.rows(context, flags.ranks),
            flags.backend,
            timeout,
            new Fit(flags.features, flags.steps, killAt));
    List<RankFit> one =
        BarrierStage.run(
            data.rows(context, 1),
            flags.backend,
            timeout,
            new Fit(flags.features, flags.steps, Fit.NEVER));
    Comparison comparison = Comparison.of(data, ranks, one.getFirst());
    Report report = new Report(out);
    report.ranks(ranks);
    report.errors(ranks.getFirst().errors());
    report.comparison(comparison, flags.ranks);
    return comparison.holds();
  }
}
