package io.nccl4j.libtorch;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/**
 * The files that this process has mapped, as Linux tells: so libraries are found whichever class
 * loader has loaded them, and none is loaded that was not.
 */
final class LoadedFiles {
  private static final Path MAPS = Path.of("/proc/self/maps");

  private LoadedFiles() {}

  /** Returns the mapped files of a name, each once, in the order of their addresses. */
  static List<Path> named(String fileName) {
    try (Stream<String> lines = Files.lines(MAPS)) {
      return lines
          .filter(line -> line.endsWith("/" + fileName))
          .map(line -> Path.of(line.substring(line.indexOf('/'))))
          .distinct()
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException("what this process has loaded cannot be read", e);
    }
  }
}
