package io.nccl4j.examples.doctor;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Where the active python3 keeps its packages, NVIDIA's wheels among them. */
final class PythonPackages {
  private static final int SECONDS = 5;
  private static final String SCRIPT =
      "import sys, sysconfig; print('\\n'.join(dict.fromkeys("
          + "[p for p in sys.path if p] + [sysconfig.get_path('purelib')])))";

  private PythonPackages() {}

  /** Returns the folders; none where there is no python3 that answers, which is nothing unusual. */
  static List<Path> folders() throws InterruptedException {
    try {
      Process python =
          new ProcessBuilder("python3", "-c", SCRIPT)
              .redirectError(ProcessBuilder.Redirect.DISCARD)
              .redirectInput(new File("/dev/null"))
              .start();
      try {
        if (!python.waitFor(SECONDS, TimeUnit.SECONDS) || python.exitValue() != 0) {
          return List.of();
        }
        byte[] answer = python.getInputStream().readAllBytes();
        return new String(answer, StandardCharsets.UTF_8)
            .lines()
            .filter(line -> !line.isBlank())
            .map(Path::of)
            .toList();
      } finally {
        python.destroyForcibly();
      }
    } catch (IOException e) {
      return List.of();
    }
  }
}
