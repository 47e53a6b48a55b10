package io.nccl4j.internal.ffm;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The folders where the system, Python, conda and the CUDA toolkit install NVIDIA's libraries. */
final class LibraryFolders {
  // Starting Python from a cold disk can take several seconds.
  private static final long PYTHON_SECONDS = 15;
  private static final String CUDA_DEFAULT_HOME = "/usr/local/cuda";
  private static final String LOADER_CACHE = "/etc/ld.so.cache";

  private LibraryFolders() {}

  /**
   * One folder to search.
   *
   * @param source the source of the folder, for messages
   * @param folder the folder, or null if the source names none
   * @param missing why there is no folder
   */
  record SearchFolder(String source, Path folder, String missing) {}

  /**
   * Returns the files with a name in the places where the system's loader looks for it, in its
   * order: {@code LD_LIBRARY_PATH}, whose empty entry is the current directory, its cache, and its
   * default folders.
   */
  static List<Path> systemFiles(String name) throws IOException {
    List<String> files = new ArrayList<>();
    String folders = System.getenv("LD_LIBRARY_PATH");
    if (folders != null && !folders.isEmpty()) {
      for (String folder : folders.split("[:;]", -1)) {
        files.add(folder.isEmpty() ? name : folder + "/" + name);
      }
    }
    Path loaderCache = Path.of(LOADER_CACHE);
    if (Files.isReadable(loaderCache)) {
      // The paths are NUL-terminated strings between the cache's tables.
      String cache = Files.readString(loaderCache, StandardCharsets.ISO_8859_1);
      Pattern.compile("\0")
          .splitAsStream(cache)
          .filter(file -> file.startsWith("/") && file.endsWith("/" + name))
          .forEach(files::add);
    }
    String processor = System.getProperty("os.arch").equals("aarch64") ? "aarch64" : "x86_64";
    for (String folder : List.of("/lib/" + processor + "-linux-gnu", "/lib64", "/lib")) {
      files.add(folder + "/" + name);
      files.add("/usr" + folder + "/" + name);
    }
    return files.stream().flatMap(LibraryFolders::existing).distinct().toList();
  }

  /** A file that cannot be named in this locale is left to the loader. */
  private static Stream<Path> existing(String file) {
    try {
      Path path = Path.of(file);
      return Files.exists(path, LinkOption.NOFOLLOW_LINKS) ? Stream.of(path) : Stream.empty();
    } catch (InvalidPathException e) {
      return Stream.empty();
    }
  }

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
      Path path = Path.of(home, folder);
      return path.isAbsolute()
          ? new SearchFolder(source, path, "")
          : new SearchFolder(source, null, "is not an absolute path: " + home);
    } catch (InvalidPathException e) {
      return new SearchFolder(source, null, unnamable(e));
    }
  }

  /** Java supports only file names in the locale's charset, which is ASCII for the C locale. */
  static String unnamable(InvalidPathException e) {
    return "cannot be named in this locale (LC_ALL=C.UTF-8 can): " + e.getInput();
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
