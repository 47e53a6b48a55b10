package io.nccl4j.examples.spark;

import java.io.PrintStream;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import scala.Option;

/** Says why an attempt of a stage has failed, in one line instead of Spark's pages. */
final class Attempts extends SparkListener {
  private static final int LONGEST = 400;

  private final PrintStream err;

  Attempts(PrintStream err) {
    this.err = err;
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted stage) {
    Option<String> reason = stage.stageInfo().failureReason();
    if (reason.isDefined()) {
      err.println(
          "spark-fit: attempt "
              + stage.stageInfo().attemptNumber()
              + " failed: "
              + withoutStack(reason.get()));
    }
  }

  /** {@return what a rank has thrown, or what Spark says of it, without stacks} */
  static String withoutStack(String reason) {
    String[] lines =
        reason.lines().map(String::strip).filter(line -> !line.isEmpty()).toArray(String[]::new);
    StringBuilder text = new StringBuilder();
    for (String line : lines) {
      if (line.startsWith("at ") || line.startsWith("Driver stacktrace")) {
        break;
      }
      text.append(text.isEmpty() ? "" : " ").append(line);
    }
    return text.length() <= LONGEST ? text.toString() : text.substring(0, LONGEST) + "...";
  }
}
