package io.nccl4j.internal;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The folders, beyond the system's own, where Python, conda and the CUDA toolkit put NVIDIA's
 * libraries.
 */
final class LibraryFolders {
  // On a machine that was just started, Python alone can take several from a cold disk.
  private static final long PYTHON_SECONDS = 15;
  private static final String CUDA_DEFAULT_HOME = "/usr/local/cuda";

  private LibraryFolders() {}

  /**
   * One folder to look in.
   *
   * @param source where the folder comes from, for messages
   * @param folder the folder, or null where the source names none
   * @param missing why there is no folder
   */
  record SearchFolder(String source, Path folder, String missing) {}

  /** Returns the folders in the order in which they are to be tried. */
  static List<SearchFolder> folders(List<String> wheelFolders) {
    List<SearchFolder> folders = new ArrayList<>();
    pythonPlaces(wheelFolders, folders);
    variablePlaces("CONDA_PREFIX", List.of("lib"), folders);
    List<String> cudaFolders = List.of("lib64", "lib");
    if (System.getenv("CUDA_HOME") == null && System.getenv("CUDA_PATH") == null) {
      cudaFolders.forEach(
          f ->
              folders.add(
                  new SearchFolder("default CUDA home", Path.of(CUDA_DEFAULT_HOME, f), "")));
    } else {
      variablePlaces("CUDA_HOME", cudaFolders, folders);
      variablePlaces("CUDA_PATH", cudaFolders, folders);
    }
    return folders;
  }

  private static void variablePlaces(
      String variable, List<String> folders, List<SearchFolder> places) {
    String home = System.getenv(variable);
    if (home == null || home.isBlank()) {
      places.add(new SearchFolder("environment variable " + variable, null, "not set"));
      return;
    }
    folders.forEach(f -> places.add(folder("environment variable " + variable, home, f)));
  }

  private static SearchFolder folder(String source, String home, String folder) {
    try {
      return new SearchFolder(source, Path.of(home, folder), "");
    } catch (InvalidPathException e) {
      // Java names files in the locale's characters alone, and the C locale has but ASCII.
      String reason = "cannot be named in this locale (LC_ALL=C.UTF-8 can): " + e.getInput();
      return new SearchFolder(source, null, reason);
    }
  }

  private static void pythonPlaces(List<String> wheelFolders, List<SearchFolder> places) {
    String source = "pip wheels of the active python3";
    try {
      for (String packages : sitePackages()) {
        wheelFolders.forEach(f -> places.add(folder(source, packages, f)));
      }
    } catch (IOException e) {
      places.add(new SearchFolder(source, null, e.getMessage()));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      places.add(new SearchFolder(source, null, "interrupted while asking python3"));
    }
  }

  /**
   * Asks the python3 of the PATH, which a virtual environment puts first, where its packages lie.
   */
  private static List<String> sitePackages() throws IOException, InterruptedException {
    String script =
        """
        import os, site, sys, sysconfig
        folders = [path for path in sys.path if path and os.path.isdir(path)]
        folders += [sysconfig.get_path('purelib')] + site.getsitepackages()
        print('\\n'.join(dict.fromkeys(map(os.path.abspath, folders))))
        """;
    Process python =
        new ProcessBuilder("python3", "-c", script)
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .redirectInput(ProcessBuilder.Redirect.from(new java.io.File("/dev/null")))
            .start();
    try {
      if (!python.waitFor(PYTHON_SECONDS, TimeUnit.SECONDS)) {
        throw new IOException("python3 did not answer within " + PYTHON_SECONDS + " s");
      }
      String answer = new String(python.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (python.exitValue() != 0) {
        throw new IOException("python3 ended with status " + python.exitValue());
      }
      // What else a start of Python prints is no folder.
      return answer.lines().filter(line -> line.startsWith("/")).toList();
    } finally {
      python.destroyForcibly();
    }
  }
}
