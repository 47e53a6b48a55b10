package io.nccl4j.tools.doctor;

import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Runs an {@link AllReduceProbe} in a separate process and kills it after a time limit. */
final class ProbeProcess {
  private static final Duration AFTER_KILL = Duration.ofSeconds(2);
  private static final String CRASH = "crash";
  // The rest of the JVM's crash message names files that are deleted with the directory.
  private static final String END_OF_CRASH = "CreateCoredumpOnCrash";
  private static final int OUTPUT_LINES = 16;
  private static final int FIRST_SIGNAL_STATUS = 129;

  private final Machine machine;
  private final Duration timeout;

  ProbeProcess(Machine machine, Duration timeout) {
    this.machine = machine;
    this.timeout = timeout;
  }

  /**
   * Runs the probe.
   *
   * @throws IOException if the process cannot be started or its files cannot be written
   */
  ProbeResult run() throws IOException, InterruptedException {
    Path folder = Files.createTempDirectory("nccl4j-doctor");
    try {
      ProgressLog log = new ProgressLog(folder.resolve("log"));
      Path output = folder.resolve("output");
      ProcessBuilder builder =
          new ProcessBuilder(command(folder, log))
              .directory(folder.toFile())
              .redirectErrorStream(true)
              .redirectOutput(output.toFile());
      // By default NCCL does not print why it fails.
      builder.environment().putIfAbsent("NCCL_DEBUG", "WARN");
      ProbeResult.ProcessEnd end = end(builder.start(), folder.resolve(CRASH));
      return ProbeResult.of(log, end, lastLines(output));
    } finally {
      OutputFile.deleteFolder(folder);
    }
  }

  private List<String> command(Path folder, ProgressLog log) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of(
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-XX:+UseSerialGC",
            "-XX:-CreateCoredumpOnCrash",
            "-XX:ErrorFile=" + folder.resolve(CRASH)));
    if (machine.nativeAccess()) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    machine.properties().forEach((name, value) -> command.add("-D" + name + "=" + value));
    command.addAll(
        List.of("-cp", System.getProperty("java.class.path"), AllReduceProbe.class.getName()));
    // The timeout of nccl4j's waits is shorter, because its message names the operation.
    command.addAll(
        List.of(log.file().toString(), Long.toString(Math.max(1, timeout.toMillis() / 2))));
    return command;
  }

  private ProbeResult.ProcessEnd end(Process process, Path crash) throws InterruptedException {
    try {
      if (!process.waitFor(timeout.toMillis(), TimeUnit.MILLISECONDS)) {
        return new ProbeResult.ProcessEnd(
            ProbeResult.ProcessEnd.Kind.TIMED_OUT,
            "did not finish within " + timeout.toSeconds() + " s");
      }
      int status = process.exitValue();
      if (Files.exists(crash)) {
        return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.CRASHED, "crashed");
      }
      if (status == 0) {
        return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.ENDED, "ended");
      }
      String text =
          status >= FIRST_SIGNAL_STATUS
              ? "was killed by signal " + (status - FIRST_SIGNAL_STATUS + 1)
              : "exited with status " + status;
      return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.CRASHED, text);
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
      // A process that hangs in the driver cannot be killed; it is abandoned.
      boolean _ = process.waitFor(AFTER_KILL.toMillis(), TimeUnit.MILLISECONDS);
    }
  }

  private static List<String> lastLines(Path output) throws IOException {
    String text = new String(Files.readAllBytes(output), StandardCharsets.UTF_8);
    List<String> lines =
        text.lines()
            .map(String::strip)
            .filter(line -> !line.isEmpty() && !line.equals("#"))
            .takeWhile(line -> !line.contains(END_OF_CRASH))
            .toList();
    return lines.subList(Math.max(0, lines.size() - OUTPUT_LINES), lines.size());
  }
}
