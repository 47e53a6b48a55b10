package io.nccl4j.tools.doctor;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Where the active python3 keeps its packages, NVIDIA's wheels among them; asked as nccl4j asks for
 * it.
 */
final class PythonPackages {
  private static final int SECONDS = 15;
  private static final String SCRIPT =
      "import os, site, sys, sysconfig; print('\\n'.join(dict.fromkeys(map(os.path.abspath,"
          + " [p for p in sys.path if p and os.path.isdir(p)]"
          + " + [sysconfig.get_path('purelib')] + site.getsitepackages()))))";

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
            // What else a start of Python prints is no folder.
            .filter(line -> line.startsWith("/"))
            .flatMap(PythonPackages::named)
            .toList();
      } finally {
        python.destroyForcibly();
      }
    } catch (IOException e) {
      return List.of();
    }
  }

  /** A folder that this locale cannot name is among the attempts of the trial, with the reason. */
  private static Stream<Path> named(String folder) {
    try {
      return Stream.of(Path.of(folder));
    } catch (InvalidPathException e) {
      return Stream.empty();
    }
  }
}
