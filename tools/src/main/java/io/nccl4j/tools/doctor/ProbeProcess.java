package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.tools.processes.ChildProcesses;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** Runs an {@link AllReduceProbe} in a separate process and kills it after a time limit. */
final class ProbeProcess {
  private static final String CRASH = "crash";
  // The rest of the JVM's crash message names files that are deleted with the directory.
  private static final String END_OF_CRASH = "CreateCoredumpOnCrash";
  private static final int OUTPUT_LINES = 16;
  private static final int FIRST_SIGNAL_STATUS = 129;

  private final boolean nativeAccess;
  private final Duration timeout;

  /**
   * Creates a runner.
   *
   * @param nativeAccess whether the process may call native code without a warning
   * @param timeout the time limit
   */
  ProbeProcess(boolean nativeAccess, Duration timeout) {
    this.nativeAccess = nativeAccess;
    this.timeout = timeout;
  }

  /**
   * Runs the probe.
   *
   * @throws IOException if the process cannot be started or its files cannot be written
   */
  ProbeResult run() throws IOException {
    try (ChildProcesses children = new ChildProcesses("nccl4j-doctor")) {
      Path folder = children.folder();
      ProgressLog log = new ProgressLog(folder.resolve("log"));
      Path output = folder.resolve("output");
      Map<String, String> environment = new HashMap<>(System.getenv());
      // By default NCCL does not print why it fails.
      environment.putIfAbsent("NCCL_DEBUG", "WARN");
      OptionalInt status =
          children.run(
              command(folder, log), environment, Redirect.to(output.toFile()), null, timeout);
      return ProbeResult.of(log, end(status, folder.resolve(CRASH)), lastLines(output));
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
    if (nativeAccess) {
      command.add("--enable-native-access=ALL-UNNAMED");
    }
    for (NativeLibrary library : MachineState.LIBRARIES) {
      String file = System.getProperty(library.property());
      if (file != null) {
        command.add("-D" + library.property() + "=" + file);
      }
    }
    command.addAll(
        List.of("-cp", System.getProperty("java.class.path"), AllReduceProbe.class.getName()));
    // The timeout of nccl4j's waits is shorter, because its message names the operation.
    command.addAll(
        List.of(log.file().toString(), Long.toString(Math.max(1, timeout.toMillis() / 2))));
    return command;
  }

  private ProbeResult.ProcessEnd end(OptionalInt status, Path crash) {
    if (status.isEmpty()) {
      return new ProbeResult.ProcessEnd(
          ProbeResult.ProcessEnd.Kind.TIMED_OUT,
          "did not finish within " + timeout.toSeconds() + " s");
    }
    if (Files.exists(crash)) {
      return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.CRASHED, "crashed");
    }
    int code = status.getAsInt();
    if (code == 0) {
      return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.ENDED, "ended");
    }
    return new ProbeResult.ProcessEnd(
        ProbeResult.ProcessEnd.Kind.CRASHED,
        code >= FIRST_SIGNAL_STATUS
            ? "was killed by signal " + (code - FIRST_SIGNAL_STATUS + 1)
            : "exited with status " + code);
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
