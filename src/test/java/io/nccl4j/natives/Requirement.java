package io.nccl4j.natives;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;

/**
 * Turns what a test lacks into a skip with its reason, or into a failure where it must not be
 * lacking.
 */
final class Requirement {
  private Requirement() {}

  /** Answers for something that is there, or why it is not. */
  static ConditionEvaluationResult of(String missing, String strictVariable) {
    if (missing == null) {
      return ConditionEvaluationResult.enabled("there");
    }
    if ("1".equals(System.getenv(strictVariable))) {
      throw new IllegalStateException(missing + " (and " + strictVariable + "=1 forbids to skip)");
    }
    return ConditionEvaluationResult.disabled(missing);
  }

  /** Skips the running test, or fails it, if a program is not on the PATH. */
  static void program(String name, String strictVariable) {
    String path = System.getenv("PATH");
    boolean there =
        path != null
            && Pattern.compile(":")
                .splitAsStream(path)
                .anyMatch(folder -> Files.isExecutable(Path.of(folder, name)));
    ConditionEvaluationResult answer =
        of(there ? null : name + " is not on the PATH", strictVariable);
    Assumptions.assumeFalse(answer.isDisabled(), () -> answer.getReason().orElseThrow());
  }

  /** Returns the library that this process is to use, as the loader will see it; or null. */
  static Path library(String label) {
    String named = System.getProperty("io.nccl4j." + label + ".library");
    return named == null ? null : Path.of(named);
  }

  /** Returns why a library that was named for this process is not there, or null if it is. */
  static String missingLibrary(String label) {
    Path path = library(label);
    if (path == null) {
      return "-Dio.nccl4j." + label + ".library names no library for this process";
    }
    return Files.exists(path) ? null : path + " is not there" + reason();
  }

  private static String reason() {
    Path file = Path.of(System.getProperty("basedir", "."), "target", "native-tests-skipped.txt");
    try {
      return Files.exists(file) ? ": " + Files.readString(file).strip() : "";
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
