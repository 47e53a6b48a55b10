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
 * Finds the package directories of the active python3, which contain NVIDIA's wheels, in the same
 * way as nccl4j does.
 */
final class PythonPackages {
  private static final int SECONDS = 15;
  private static final String SCRIPT =
      """
      import os, site, sys, sysconfig
      folders = os.environ.get('PYTHONPATH', '').split(os.pathsep)
      if sys.prefix == sys.base_prefix:
          folders.append(site.getusersitepackages())
      folders += sys.path + [sysconfig.get_path('purelib')] + site.getsitepackages()
      print('\\n'.join(path for path in dict.fromkeys(folders) if os.path.isdir(path)))
      """;

  private PythonPackages() {}

  /** Returns the directories; empty if there is no python3 or it fails. */
  static List<Path> folders() throws InterruptedException {
    try {
      Process python =
          new ProcessBuilder("python3", "-I", "-c", SCRIPT)
              .directory(new File("/"))
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
            // Python may print other lines at startup.
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

  /**
   * Skips a name that is invalid in this locale; the attempts of the probe list it with the reason.
   */
  private static Stream<Path> named(String folder) {
    try {
      return Stream.of(Path.of(folder));
    } catch (InvalidPathException e) {
      return Stream.empty();
    }
  }
}
