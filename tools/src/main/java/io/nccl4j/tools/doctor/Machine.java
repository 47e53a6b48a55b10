package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The machine to check.
 *
 * @param root the directory used as {@code /}
 * @param environment the environment variables
 * @param ports the network interfaces
 * @param java the Java release of this process
 * @param nativeAccess whether nccl4j may call native code without a warning
 */
record Machine(
    Path root,
    Map<String, String> environment,
    List<NetworkPort> ports,
    Runtime.Version java,
    boolean nativeAccess) {

  /** Returns the machine of this process. */
  static Machine current() throws IOException {
    return new Machine(
        Path.of("/"),
        System.getenv(),
        NetworkPort.ofThisMachine(),
        Runtime.version(),
        io.nccl4j.Backend.class.getModule().isNativeAccessEnabled());
  }

  /** Resolves an absolute path against the root. */
  Path path(String absolute) {
    return root.resolve(absolute.replaceFirst("^/+", ""));
  }

  boolean has(String absolute) {
    return Files.exists(path(absolute));
  }

  /**
   * Returns a file's text; empty if there is no such file or this user may not read it. Bytes that
   * are not UTF-8 are replaced.
   */
  Optional<String> text(String absolute) {
    try {
      byte[] bytes = Files.readAllBytes(path(absolute));
      return Optional.of(new String(bytes, StandardCharsets.UTF_8));
    } catch (NoSuchFileException | AccessDeniedException e) {
      return Optional.empty();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the sorted names in a directory; empty if there is no such directory. */
  List<String> names(String absolute) {
    List<String> names = new ArrayList<>();
    try (DirectoryStream<Path> entries = Files.newDirectoryStream(path(absolute))) {
      entries.forEach(entry -> names.add(entry.getFileName().toString()));
    } catch (NoSuchFileException | NotDirectoryException e) {
      return List.of();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return names.stream().sorted().toList();
  }

  /** Returns a variable's value; empty if it is unset or blank. */
  Optional<String> variable(String name) {
    return Optional.ofNullable(environment.get(name)).filter(value -> !value.isBlank());
  }

  /** Returns the number of NVIDIA GPUs that the kernel module lists, visible to CUDA or not. */
  int driverGpuCount() {
    return names("/proc/driver/nvidia/gpus").size();
  }
}
