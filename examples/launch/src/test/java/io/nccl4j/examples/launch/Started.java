package io.nccl4j.examples.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A running command with a clean environment, and its output. */
final class Started {
  private static final int TIMEOUT_SECONDS = 300;

  private final List<String> command;
  private final Process process;
  private final Path out;
  private final Path err;

  private Started(List<String> command, Process process, Path out, Path err) {
    this.command = command;
    this.process = process;
    this.out = out;
    this.err = err;
  }

  /** Starts a command without the launcher variables of this test's own environment. */
  static Started with(Map<String, String> environment, List<String> command) throws IOException {
    Path out = Files.createTempFile("nccl4j-launch", ".out");
    Path err = Files.createTempFile("nccl4j-launch", ".err");
    out.toFile().deleteOnExit();
    err.toFile().deleteOnExit();
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectOutput(out.toFile()).redirectError(err.toFile());
    builder.environment().keySet().removeIf(Started::isOfALauncher);
    builder.environment().putAll(environment);
    return new Started(command, builder.start(), out, err);
  }

  private static boolean isOfALauncher(String name) {
    return name.matches(
        "(OMPI_|PMIX?_|MPI_|SLURM_|TORCHELASTIC_|NCCL4J_|JOB_COMPLETION_|MASTER_).*"
            + "|(LOCAL_)?(RANK|WORLD_SIZE)");
  }

  /** Returns the command of a Java program on this test's class path, with a minimal JVM setup. */
  static List<String> java(Class<?> main, String... arguments) {
    List<String> command =
        new ArrayList<>(
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "--enable-native-access=ALL-UNNAMED",
                "-cp",
                System.getProperty("java.class.path"),
                main.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  /** Waits for the end; returns the lines of standard output, sorted since rank order varies. */
  List<String> lines() throws IOException, InterruptedException {
    assertEquals(0, status(), this::toString);
    return output().sorted().toList();
  }

  Stream<String> output() throws IOException {
    return Files.readAllLines(out).stream();
  }

  int status() throws InterruptedException {
    boolean ended = process.waitFor(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    if (!ended) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    assertTrue(ended, () -> "still running: " + this);
    return process.exitValue();
  }

  String errors() throws IOException {
    return Files.readString(err);
  }

  @Override
  public String toString() {
    try {
      return String.join(" ", command)
          + "\n--- stdout\n"
          + Files.readString(out)
          + "\n--- stderr\n"
          + Files.readString(err);
    } catch (IOException e) {
      return command + ": " + e;
    }
  }
}
