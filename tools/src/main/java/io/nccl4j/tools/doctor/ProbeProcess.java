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

/** Runs an {@link AllReduceProbe} in a process of its own, which is ended when its time is over. */
final class ProbeProcess {
  private static final Duration AFTER_KILL = Duration.ofSeconds(2);
  private static final String CRASH = "crash";
  // What Java prints of a crash from here on is about files that are gone when anybody reads it.
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
   * Runs the trial.
   *
   * @throws IOException if the process cannot be started or its files cannot be written
   */
  ProbeResult run() throws IOException, InterruptedException {
    Path folder = Files.createTempDirectory("nccl4j-doctor");
    try {
      ProgressLog log = new ProgressLog(folder.resolve("diary"));
      Path output = folder.resolve("output");
      ProcessBuilder builder =
          new ProcessBuilder(command(folder, log))
              .directory(folder.toFile())
              .redirectErrorStream(true)
              .redirectOutput(output.toFile());
      // Else NCCL does not say why it fails.
      builder.environment().putIfAbsent("NCCL_DEBUG", "WARN");
      ProbeResult.ProcessEnd end = end(builder.start(), folder.resolve(CRASH));
      return ProbeResult.of(log, end, lastLines(output));
    } finally {
      OutputFile.deleteFolder(folder);
    }
  }

  private List<String> command(Path folder, ProgressLog diary) {
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
    // The library's own deadlines come first: they say what was waited for.
    command.addAll(
        List.of(diary.file().toString(), Long.toString(Math.max(1, timeout.toMillis() / 2))));
    return command;
  }

  private ProbeResult.ProcessEnd end(Process process, Path crash) throws InterruptedException {
    try {
      if (!process.waitFor(timeout.toMillis(), TimeUnit.MILLISECONDS)) {
        return new ProbeResult.ProcessEnd(
            ProbeResult.ProcessEnd.Kind.TIMED_OUT,
            "did not end within " + timeout.toSeconds() + " s");
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
              ? "was ended by signal " + (status - FIRST_SIGNAL_STATUS + 1)
              : "ended with status " + status;
      return new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.CRASHED, text);
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
      // A process that is stuck in the driver cannot be ended; it is left to the system.
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
