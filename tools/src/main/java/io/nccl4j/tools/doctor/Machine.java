package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * The machine that is looked at.
 *
 * @param root what stands for {@code /}
 * @param environment the variables that a program started here would see
 * @param properties the system properties that name libraries
 * @param ports the network interfaces
 * @param java the Java that runs here
 * @param nativeAccess whether Java lets nccl4j call native code without a warning
 */
record Machine(
    Path root,
    Map<String, String> environment,
    Map<String, String> properties,
    List<NetworkPort> ports,
    Runtime.Version java,
    boolean nativeAccess) {

  /** Returns the machine that this process runs on. */
  static Machine current() throws IOException {
    return new Machine(
        Path.of("/"),
        System.getenv(),
        libraryProperties(),
        NetworkPort.ofThisMachine(),
        Runtime.version(),
        io.nccl4j.Backend.class.getModule().isNativeAccessEnabled());
  }

  private static Map<String, String> libraryProperties() {
    Map<String, String> properties = new TreeMap<>();
    for (NativeLibraryName library : NativeLibraryName.values()) {
      String value = System.getProperty(library.property());
      if (value != null) {
        properties.put(library.property(), value);
      }
    }
    return properties;
  }

  /** Returns where an absolute path lies. */
  Path path(String absolute) {
    return root.resolve(absolute.replaceFirst("^/+", ""));
  }

  boolean has(String absolute) {
    return Files.exists(path(absolute));
  }

  /** Returns a file's text, or nothing if there is no such file. */
  Optional<String> text(String absolute) {
    try {
      return Optional.of(Files.readString(path(absolute)));
    } catch (NoSuchFileException e) {
      return Optional.empty();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the names in a folder, sorted; none if there is no such folder. */
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

  /** Returns a variable's value, or nothing if it is not set or blank. */
  Optional<String> variable(String name) {
    return Optional.ofNullable(environment.get(name)).filter(value -> !value.isBlank());
  }

  /** Returns how many NVIDIA GPUs the kernel's driver shows, whatever this process may see. */
  int gpusOfTheDriver() {
    return names("/proc/driver/nvidia/gpus").size();
  }
}
