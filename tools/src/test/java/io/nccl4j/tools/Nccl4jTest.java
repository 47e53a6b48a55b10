package io.nccl4j.tools;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The command that starts all tools. */
class Nccl4jTest {
  private static FinishedProgram run(String... args) throws Exception {
    List<String> command =
        FinishedProgram.java("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", Nccl4j.class.getName());
    command.addAll(List.of(args));
    return FinishedProgram.run(Map.of(), command);
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
    FinishedProgram ended = run(tool, "--help");
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.output().contains("Usage: scripts/" + name + " "), ended.output());
  }

  @Test
  void unknownToolIsNamed() throws Exception {
    FinishedProgram ended = run("pref", "--help");
    assertEquals(2, ended.status());
    assertTrue(ended.output().startsWith("nccl4j: unknown tool 'pref'\nusage: "), ended.output());
  }

  @Test
  void sweepStartsPerfThroughNccl4j() throws Exception {
    FinishedProgram ended =
        run("sweep", "--backend", "reference", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1");
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.output().contains("ring"), ended.output());
  }
}
