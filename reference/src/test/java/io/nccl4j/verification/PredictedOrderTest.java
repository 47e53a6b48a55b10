package io.nccl4j.verification;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Verifies the stand-in with what its profiler reports, in a new process, since a profiler is
 * installed before NCCL is loaded.
 */
@OnStandIn
class PredictedOrderTest {
  @TempDir private Path folder;

  @Test
  void bitsOfFloatsAreComparedInNcclsOrder() throws Exception {
    Map<String, String> log = Map.of("NCCL_DEBUG_FILE", folder.resolve("nccl.%h.%p").toString());
    List<String> lines = run(log, PredictedRanks.class);
    for (int rank = 0; rank < 4; rank++) {
      String counts = "bits=5, bounded=0, findings=%d, skipped={}".formatted(rank == 1 ? 2 : 1);
      assertTrue(
          lines.contains("rank %d: VerificationCounts[%s]".formatted(rank, counts)),
          lines::toString);
    }
    List<String> found = lines.stream().filter(line -> line.contains("element")).toList();
    assertTrue(
        found
                .getFirst()
                .contains(
                    "(FLOAT32; NCCL's choice: RING, SIMPLE, 2 channels; channel 1, chunk 2): element 900000 of rank 1 is")
            && found
                .getFirst()
                .endsWith(
                    "(compared bit for bit); wrong elements of rank 1: 1; ranks with wrong elements: [1]"),
        found::toString);
    // The stand-in's sums of fractions are not those of a ring.
    for (String order : found.subList(1, 5)) {
      assertTrue(
          order.contains("RING, SIMPLE") && order.endsWith("wrong elements: [0, 1, 2, 3]"), order);
    }
  }

  @Test
  void withoutNcclsLogSumsAreComparedWithinABound() throws Exception {
    List<String> lines = run(Map.of(), PredictedRanks.class);
    assertTrue(
        lines.contains(
            "rank 1: VerificationCounts[bits=0, bounded=4, findings=1, skipped={OPERATOR=1}]"),
        lines::toString);
    String found =
        lines.stream().filter(line -> line.contains("element")).findFirst().orElseThrow();
    assertTrue(
        found.contains("(FLOAT32; NCCL's choice: RING, SIMPLE, 2 channels): element 900000")
            && found.contains(", since the order is unknown)"),
        found);
  }

  @Test
  void programOfTheGuideRuns() throws Exception {
    assertEquals(
        List.of("VerificationCounts[bits=1, bounded=0, findings=0, skipped={}]"),
        run(Map.of(), VerificationGuide.class).stream().distinct().toList());
  }

  private static List<String> run(Map<String, String> environment, Class<?> main) throws Exception {
    List<String> command =
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            main.getName());
    FinishedProgram program = FinishedProgram.run(environment, command);
    assertEquals(0, program.status(), program::output);
    return program
        .out()
        .lines()
        .filter(line -> line.startsWith("> "))
        .map(line -> line.substring(2))
        .toList();
  }
}
