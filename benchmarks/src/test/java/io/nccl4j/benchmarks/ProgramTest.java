package io.nccl4j.benchmarks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ProgramTest {
  private static final Duration SOON = Duration.ofSeconds(20);
  private static final int KILLED = 128 + 9;

  private final List<String> lines = new ArrayList<>();

  private int run(Duration timeout, String script) throws Exception {
    ProcessBuilder builder = new ProcessBuilder("sh", "-c", script);
    return assertTimeoutPreemptively(SOON, () -> Program.run(builder, timeout, lines::add));
  }

  @Test
  void outputAndErrorsAreRead() throws Exception {
    assertEquals(3, run(SOON, "echo out; echo error >&2; exit 3"));
    assertEquals(List.of("out", "error"), lines);
  }

  @Test
  void hungProgramAndItsChildrenAreKilled() throws Exception {
    assertEquals(KILLED, run(Duration.ofSeconds(3), "echo begun; sleep 60 & sleep 60"));
    assertEquals(List.of("begun"), lines);
  }
}
