package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * One copy of a library that nccl4j or another program would find on this machine.
 *
 * @param source how it is found, such as {@code LD_LIBRARY_PATH}
 * @param path the file, with symbolic links resolved
 */
record LibraryCopy(String source, Path path) {
  private static final List<String> SYSTEM_FOLDERS =
      List.of(
          "/lib/x86_64-linux-gnu",
          "/usr/lib/x86_64-linux-gnu",
          "/lib/aarch64-linux-gnu",
          "/usr/lib/aarch64-linux-gnu",
          "/lib64",
          "/usr/lib64",
          "/lib",
          "/usr/lib");

  /**
   * Returns the distinct copies of a library, in nccl4j's search order.
   *
   * @param sitePackages the package directories of the active python3
   */
  static List<LibraryCopy> of(NativeLibraryName library, Machine machine, List<Path> sitePackages) {
    Map<Path, LibraryCopy> copies = new LinkedHashMap<>();
    named(library, machine).ifPresent(copy -> copies.putIfAbsent(copy.path(), copy));
    for (CopySource source : searchPath(library, machine, sitePackages)) {
      for (String name : library.files()) {
        real(source.folder().resolve(name))
            .ifPresent(file -> copies.putIfAbsent(file, new LibraryCopy(source.source(), file)));
      }
    }
    return List.copyOf(copies.values());
  }

  private record CopySource(String source, Path folder) {}

  private static Optional<LibraryCopy> named(NativeLibraryName library, Machine machine) {
    String property = machine.properties().get(library.property());
    String value = property == null ? machine.environment().get(library.variable()) : property;
    if (value == null || value.isBlank()) {
      return Optional.empty();
    }
    String source = property == null ? library.variable() : "-D" + library.property();
    return path(value, machine).stream()
        .flatMap(
            path ->
                Files.isDirectory(path)
                    ? library.files().stream().map(path::resolve)
                    : Stream.of(path))
        .flatMap(file -> real(file).stream())
        .findFirst()
        .map(file -> new LibraryCopy(source, file));
  }

  private static List<CopySource> searchPath(
      NativeLibraryName library, Machine machine, List<Path> sitePackages) {
    List<CopySource> sources = new ArrayList<>();
    machine
        .variable("LD_LIBRARY_PATH")
        .ifPresent(value -> folders(value, "LD_LIBRARY_PATH", machine, sources));
    configured(machine).forEach(f -> add("the system loader", f, machine, sources));
    for (Path packages : sitePackages) {
      library
          .wheelFolders()
          .forEach(f -> sources.add(new CopySource("a pip wheel of python3", packages.resolve(f))));
    }
    machine
        .variable("CONDA_PREFIX")
        .ifPresent(home -> add("CONDA_PREFIX", home + "/lib", machine, sources));
    cudaHomes(machine)
        .forEach(
            (source, home) -> {
              add(source, home + "/lib64", machine, sources);
              add(source, home + "/lib", machine, sources);
            });
    return sources;
  }

  private static void add(
      String source, String folder, Machine machine, List<CopySource> searchPath) {
    path(folder, machine).ifPresent(path -> searchPath.add(new CopySource(source, path)));
  }

  /** Skips a name that is invalid in this locale, as nccl4j does. */
  private static Optional<Path> path(String name, Machine machine) {
    try {
      return Optional.of(machine.path(name));
    } catch (InvalidPathException e) {
      return Optional.empty();
    }
  }

  private static void folders(
      String value, String source, Machine machine, List<CopySource> searchPath) {
    for (String folder : value.split("[:;]", -1)) {
      if (!folder.isBlank()) {
        add(source, folder, machine, searchPath);
      }
    }
  }

  /** Returns the directories in ld.so's configuration, then its default directories. */
  private static List<String> configured(Machine machine) {
    List<String> folders = new ArrayList<>();
    List<String> files = new ArrayList<>(List.of("/etc/ld.so.conf"));
    machine.names("/etc/ld.so.conf.d").stream()
        .filter(name -> name.endsWith(".conf"))
        .forEach(name -> files.add("/etc/ld.so.conf.d/" + name));
    for (String file : files) {
      machine
          .text(file)
          .ifPresent(
              text ->
                  text.lines()
                      .map(String::strip)
                      .filter(l -> l.startsWith("/"))
                      .forEach(folders::add));
    }
    folders.addAll(SYSTEM_FOLDERS);
    return folders;
  }

  private static Map<String, String> cudaHomes(Machine machine) {
    Map<String, String> homes = new LinkedHashMap<>();
    for (String name : List.of("CUDA_HOME", "CUDA_PATH")) {
      machine.variable(name).ifPresent(home -> homes.put(name, home));
    }
    return homes.isEmpty() ? Map.of("the default CUDA home", "/usr/local/cuda") : homes;
  }

  private static Optional<Path> real(Path file) {
    try {
      return Files.isRegularFile(file) ? Optional.of(file.toRealPath()) : Optional.empty();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public String toString() {
    return path + " (" + source + ")";
  }
}
