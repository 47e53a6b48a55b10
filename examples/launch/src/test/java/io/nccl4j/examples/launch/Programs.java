package io.nccl4j.examples.launch;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.stream.Stream;

/** Finds the launchers installed on this machine. */
final class Programs {
  static final Path ROOT = Path.of("").toAbsolutePath().getParent().getParent();

  private Programs() {}

  static String openMpi() {
    return required("Open MPI's mpirun", mpirun("Open MPI", "mpirun.openmpi", "mpirun"));
  }

  static String mpich() {
    return required("MPICH's mpirun", mpirun("HYDRA", "mpirun.mpich", "mpiexec.hydra", "mpirun"));
  }

  static String torchrun() {
    Path made = ROOT.resolve("target/torch/bin/torchrun");
    return required(
        "torchrun (scripts/lib/fetch-torchrun installs it)",
        onPath("torchrun").or(() -> Optional.of(made).filter(Files::isExecutable)));
  }

  /**
   * Returns a launcher; if it is missing, skips the test, or fails it if launchers are required.
   */
  private static String required(String name, Optional<Path> found) {
    String missing = "not found: " + name;
    boolean strict = "1".equals(System.getenv("REQUIRE_LAUNCHERS"));
    assertTrue(found.isPresent() || !strict, missing + " (REQUIRE_LAUNCHERS=1)");
    assumeTrue(found.isPresent(), missing);
    return found.get().toString();
  }

  /** Finds the first program of these names whose version output contains the implementation. */
  private static Optional<Path> mpirun(String implementation, String... names) {
    return Stream.of(names)
        .flatMap(name -> onPath(name).stream())
        .filter(file -> version(file).contains(implementation))
        .findFirst();
  }

  private static String version(Path file) {
    try {
      Process process =
          new ProcessBuilder(file.toString(), "--version").redirectErrorStream(true).start();
      return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new AssertionError(file + " --version fails", e);
    }
  }

  private static Optional<Path> onPath(String name) {
    return Stream.of(System.getenv("PATH").split(":", -1))
        .map(folder -> Path.of(folder, name))
        .filter(Files::isExecutable)
        .findFirst();
  }
}
