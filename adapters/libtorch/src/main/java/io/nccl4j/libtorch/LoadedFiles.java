package io.nccl4j.libtorch;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * The mapped files of this process, from {@code /proc/self/maps}. Finds libraries independently of
 * the class loader that loaded them, and does not load any.
 */
final class LoadedFiles {
  private static final Path MAPS = Path.of("/proc/self/maps");

  private LoadedFiles() {}

  /** Returns the distinct mapped files with this name, in address order. */
  static List<Path> named(String fileName) {
    try {
      // Not Files.lines: a mapped path need not be UTF-8.
      return new String(Files.readAllBytes(MAPS), StandardCharsets.UTF_8)
          .lines()
          .filter(line -> line.endsWith("/" + fileName))
          .map(line -> Path.of(line.substring(line.indexOf('/'))))
          .distinct()
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException("the mapped files of this process cannot be read", e);
    }
  }
}
