package io.nccl4j.examples.spark;

import io.nccl4j.tools.cli.Commands;
import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;

/** The command: from a command line to an exit status. */
public final class SparkFit {
  /** The fits differ. */
  static final int WRONG = 3;

  private final PrintStream out;
  private final PrintStream err;

  /**
   * Makes a command.
   *
   * @param out where the report goes
   * @param err where messages go
   */
  SparkFit(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and ends the process with its status. */
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
      // Whatever Spark throws: its Scala code declares nothing.
      err.println("spark-fit: " + reason(String.valueOf(e.getMessage()), settings));
      return Commands.FAILED;
    }
  }

  /** Returns why a fit failed; what Spark says when it gives up on its master names no master. */
  static String reason(String message, SparkConf settings) {
    String master = settings.get("spark.master");
    boolean stopped = message.matches("(?s).*(SparkContext (has been|was) shut|stopped Spark).*");
    return stopped && !master.startsWith("local")
        ? "Spark gave up: its master " + master + " could not be reached, or is gone"
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
