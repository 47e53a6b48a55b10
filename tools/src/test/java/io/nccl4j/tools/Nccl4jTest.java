package io.nccl4j.tools;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The one command of all tools. */
class Nccl4jTest {
  private record Ended(int status, String said) {}

  private static Ended run(String... args) throws Exception {
    List<String> command =
        new ArrayList<>(
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                System.getProperty("java.class.path"),
                Nccl4j.class.getName()));
    command.addAll(List.of(args));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Ended(process.waitFor(), said);
  }

  @ParameterizedTest
  @CsvSource({
    "perf, perf",
    "sweep, sweep",
    "report, perf-report",
    "doctor, doctor",
    "trace, trace",
    "explain, explain",
    "simulate, simulate",
    "evidence, gpu-evidence"
  })
  void toolPrintsItsOwnHelp(String tool, String name) throws Exception {
    Ended ended = run(tool, "--help");
    assertEquals(0, ended.status(), ended.said());
    assertTrue(ended.said().contains("Usage: scripts/" + name + " "), ended.said());
  }

  @Test
  void unknownToolIsNamed() throws Exception {
    Ended ended = run("pref", "--help");
    assertEquals(2, ended.status());
    assertTrue(ended.said().startsWith("nccl4j: there is no tool 'pref'\nusage: "), ended.said());
  }

  @Test
  void sweepStartsPerfThroughTheSameCommand() throws Exception {
    Ended ended =
        run("sweep", "--backend", "reference", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1");
    assertEquals(0, ended.status(), ended.said());
    assertTrue(ended.said().contains("ring"), ended.said());
  }
}
