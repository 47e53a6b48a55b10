package io.nccl4j.plugin;

import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.SequencedMap;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** Gives a plugin to NCCL: a file that has its tables, named by an environment variable. */
final class PluginFile {
  // NCCL truncates longer names.
  private static final int LONGEST_PATH = 254;
  private static final String PREFIX = "libnccl4j-plugin-";

  private static final Set<String> INSTALLED = ConcurrentHashMap.newKeySet();

  private PluginFile() {}

  /** Returns whether the plugin that a variable names is one of nccl4j. */
  static boolean installed(String variable) {
    return INSTALLED.contains(variable);
  }

  /**
   * Installs a plugin, which takes effect when NCCL is loaded.
   *
   * @param plugin what is installed, for messages
   * @param variable the environment variable that names the plugin to NCCL
   * @param version the first version of NCCL that has the interface, such as 22902 for 2.29.2
   * @param tables makes the table of each symbol
   * @throws IllegalStateException if NCCL is loaded, or the variable names another plugin
   */
  static void install(
      String plugin,
      String variable,
      int version,
      Supplier<SequencedMap<String, List<MemorySegment>>> tables) {
    NativeLibrary.NCCL.beforeLoad(
        plugin,
        () -> write(plugin, variable, tables),
        loaded -> {
          if (loaded.version() < version) {
            throw new UnsupportedNcclVersionException(
                plugin, text(loaded.version()), text(version));
          }
        });
  }

  private static String text(int version) {
    return version / 10000 + "." + version / 100 % 100 + "." + version % 100;
  }

  /**
   * Loads the plugin from a file, names the file to NCCL, and deletes it: the loader of the system
   * knows by its name that it is loaded. A child process that inherits the name thus finds no file,
   * rather than tables without functions.
   */
  private static void write(
      String plugin, String variable, Supplier<SequencedMap<String, List<MemorySegment>>> tables) {
    String name = PREFIX + ProcessHandle.current().pid() + ".so";
    Optional<String> other = named(variable).filter(value -> !inherited(value, name));
    if (other.isPresent()) {
      throw new IllegalStateException(
          plugin
              + " cannot be installed: "
              + variable
              + " already names "
              + other.get()
              + ", and NCCL loads one plugin of a kind");
    }
    try {
      // Only this user may write to it. The loader compares names without links.
      Path directory = Files.createTempDirectory("nccl4j-plugin-").toRealPath();
      Path file = directory.resolve(name);
      try {
        checkLength(file);
        DataLibrary.load(file, tables.get());
      } finally {
        Files.deleteIfExists(file);
        Files.delete(directory);
      }
      NativeEnvironment.set(variable, file.toString());
      INSTALLED.add(variable);
    } catch (IOException e) {
      throw new UncheckedIOException(
          plugin + " cannot be installed: no file can be written in java.io.tmpdir", e);
    }
  }

  private static void checkLength(Path file) {
    if (file.toString().getBytes(StandardCharsets.UTF_8).length > LONGEST_PATH) {
      throw new IllegalStateException(
          file
              + " has more than "
              + LONGEST_PATH
              + " bytes, which NCCL truncates; set -Djava.io.tmpdir to a shorter path");
    }
  }

  /** Returns what names a plugin to NCCL: the installed environment, or that of the process. */
  private static Optional<String> named(String variable) {
    return NcclEnvironment.value(variable).filter(value -> !value.isEmpty());
  }

  /** Whether another process, which started this one, wrote the file. */
  private static boolean inherited(String value, String own) {
    String name = value.substring(value.lastIndexOf('/') + 1);
    return name.startsWith(PREFIX) && !name.equals(own);
  }
}
