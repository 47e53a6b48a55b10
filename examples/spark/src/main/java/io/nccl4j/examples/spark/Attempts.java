package io.nccl4j.examples.spark;

import java.io.PrintStream;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import scala.Option;

/** Prints why an attempt of a stage has failed, in one line instead of Spark's full report. */
final class Attempts extends SparkListener {
  private static final int MAX_LENGTH = 400;

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

  /** {@return Spark's reason of a failure, without stack traces} */
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
    return text.length() <= MAX_LENGTH ? text.toString() : text.substring(0, MAX_LENGTH) + "...";
  }
}
