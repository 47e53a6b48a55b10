package io.nccl4j.internal;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The folders, apart from the system's own, where Python, conda and the CUDA toolkit install
 * NVIDIA's libraries.
 */
final class LibraryFolders {
  // Starting Python from a cold disk can take several seconds.
  private static final long PYTHON_SECONDS = 15;
  private static final String CUDA_DEFAULT_HOME = "/usr/local/cuda";

  private LibraryFolders() {}

  /**
   * One folder to search.
   *
   * @param source the source of the folder, for messages
   * @param folder the folder, or null if the source names none
   * @param missing why there is no folder
   */
  record SearchFolder(String source, Path folder, String missing) {}

  /** Returns the folders in search order. */
  static List<SearchFolder> folders(List<String> wheelFolders) {
    List<SearchFolder> folders = new ArrayList<>();
    addPythonFolders(wheelFolders, folders);
    addVariableFolders("CONDA_PREFIX", List.of("lib"), folders);
    List<String> cudaFolders = List.of("lib64", "lib");
    if (System.getenv("CUDA_HOME") == null && System.getenv("CUDA_PATH") == null) {
      cudaFolders.forEach(
          f ->
              folders.add(
                  new SearchFolder("default CUDA home", Path.of(CUDA_DEFAULT_HOME, f), "")));
    } else {
      addVariableFolders("CUDA_HOME", cudaFolders, folders);
      addVariableFolders("CUDA_PATH", cudaFolders, folders);
    }
    return folders;
  }

  private static void addVariableFolders(
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
      // Java supports only file names in the locale's charset, which is ASCII for the C locale.
      String reason = "cannot be named in this locale (LC_ALL=C.UTF-8 can): " + e.getInput();
      return new SearchFolder(source, null, reason);
    }
  }

  private static void addPythonFolders(List<String> wheelFolders, List<SearchFolder> places) {
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
   * Queries the package folders of the first python3 in the PATH, which is that of an active
   * virtual environment.
   */
  private static List<String> sitePackages() throws IOException, InterruptedException {
    String script =
        """
        import os, site, sys, sysconfig
        folders = os.environ.get('PYTHONPATH', '').split(os.pathsep)
        if sys.prefix == sys.base_prefix:
            folders.append(site.getusersitepackages())
        folders += sys.path + [sysconfig.get_path('purelib')] + site.getsitepackages()
        print('\\n'.join(path for path in dict.fromkeys(folders) if os.path.isdir(path)))
        """;
    // Isolated, and started in the root directory, because neither Python's modules nor a relative
    // folder of the PATH may come from the current directory.
    Process python =
        new ProcessBuilder("python3", "-I", "-c", script)
            .directory(new File("/"))
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .redirectInput(new File("/dev/null"))
            .start();
    try {
      if (!python.waitFor(PYTHON_SECONDS, TimeUnit.SECONDS)) {
        throw new IOException("python3 did not answer within " + PYTHON_SECONDS + " s");
      }
      String output = new String(python.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (python.exitValue() != 0) {
        throw new IOException("python3 ended with status " + python.exitValue());
      }
      // Ignore other output of Python's start.
      return output.lines().filter(line -> line.startsWith("/")).toList();
    } finally {
      python.destroyForcibly();
    }
  }
}
