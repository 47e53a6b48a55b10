package io.nccl4j.benchmarks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.benchmarks.PeerProgram.FailedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalDouble;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CacheLineLatencyTest {
  private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  @TempDir private Path folder;

  @Test
  void nanosecondsAreRead() throws Exception {
    assertEquals(OptionalDouble.of(31.4), CacheLineLatency.parse("31.4"));
  }

  @Test
  void singleProcessorYieldsNoResult() throws Exception {
    assertEquals(OptionalDouble.empty(), CacheLineLatency.parse("unmeasured"));
  }

  @Test
  void otherProgramOutputIsShown() {
    for (String printed : List.of("", "-1", "nan", "31.4 ns")) {
      FailedException thrown =
          assertThrows(FailedException.class, () -> CacheLineLatency.parse(printed), printed);
      assertEquals(
          "cache_line_latency printed '" + printed + "'; it must be nanoseconds or 'unmeasured'",
          thrown.getMessage());
    }
  }

  @Test
  void failedProgramIsReported() {
    CacheLineLatency failing = new CacheLineLatency(List.of("sh", "-c", "echo no thread; exit 1"));
    FailedException thrown = assertThrows(FailedException.class, failing::measure);
    assertEquals("cache_line_latency ended with status 1: no thread", thrown.getMessage());
  }

  @Test
  void twoProcessorsAreMeasured() throws Exception {
    assumeTrue(PROCESSORS > 1, "there is one processor");
    double nanoseconds = built().measure().orElseThrow();
    assertTrue(nanoseconds > 1 && nanoseconds < 1e6, "implausible: " + nanoseconds + " ns");
  }

  @Test
  void singleProcessorIsNotMeasured() throws Exception {
    assumeTrue(found("taskset"), "there is no taskset");
    List<String> onFirst = new ArrayList<>(List.of("taskset", "-c", firstProcessor()));
    onFirst.addAll(built().command());
    assertEquals(OptionalDouble.empty(), new CacheLineLatency(onFirst).measure());
  }

  private CacheLineLatency built() throws Exception {
    assumeTrue(found("gcc"), "there is no gcc");
    Path program = folder.resolve("cache_line_latency");
    Process compiler =
        new ProcessBuilder(
                "gcc", "-O3", "-pthread", "peers/cache_line_latency.c", "-o", program.toString())
            .inheritIO()
            .start();
    assertEquals(0, compiler.waitFor());
    return new CacheLineLatency(List.of(program.toString()));
  }

  /** Returns the first processor that this process may use, which need not be processor 0. */
  private static String firstProcessor() throws Exception {
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
      return lines
          .filter(line -> line.startsWith("Cpus_allowed_list:"))
          .map(line -> line.replaceAll("\\D+(\\d+).*", "$1"))
          .findFirst()
          .orElseThrow();
    }
  }

  private static boolean found(String program) {
    return Stream.of(System.getenv("PATH").split(":", -1))
        .anyMatch(folder -> Files.isExecutable(Path.of(folder, program)));
  }
}
