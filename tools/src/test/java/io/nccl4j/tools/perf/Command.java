package io.nccl4j.tools.perf;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;

/**
 * A finished run of the command in this process.
 *
 * @param status its exit status
 * @param out its stdout
 * @param err its stderr
 */
record Command(int status, String out, String err) {
  /** Runs the command. */
  static Command run(String... args) {
    return run(UnaryOperator.identity(), args);
  }

  /** Runs the command on the reference backend with arguments that are separated by spaces. */
  static Command reference(String arguments) {
    return run((arguments + " --backend reference").split(" ", -1));
  }

  /** Runs the command with a wrapped collective. */
  static Command run(UnaryOperator<RankEnqueue> interceptor, String... args) {
    return run(interceptor, Map.of(), args);
  }

  /** Runs the command in an environment. */
  static Command runIn(Map<String, String> environment, String... args) {
    return run(UnaryOperator.identity(), environment, args);
  }

  private static Command run(
      UnaryOperator<RankEnqueue> interceptor, Map<String, String> environment, String... args) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    Perf perf =
        new Perf(
            new PrintStream(out, false, StandardCharsets.UTF_8),
            new PrintStream(err, false, StandardCharsets.UTF_8),
            false,
            environment,
            interceptor);
    int status = perf.run(args);
    return new Command(
        status, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
  }

  /** Returns the rows of the table, split at spaces. */
  List<List<String>> rows() {
    return out.lines()
        .filter(line -> !line.isBlank() && !line.startsWith("#"))
        .map(line -> List.of(line.strip().split(" +")))
        .toList();
  }

  /** Returns the lines of stderr. */
  List<String> errors() {
    return err.lines().toList();
  }
}
