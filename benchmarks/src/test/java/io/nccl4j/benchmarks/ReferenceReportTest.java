package io.nccl4j.benchmarks;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.benchmarks.PeerProgram.Cell;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import io.nccl4j.benchmarks.PeerProgram.Measurement;
import io.nccl4j.benchmarks.ReferencePeers.Row;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ReferenceReportTest {
  private final Measurements measurements = new Measurements();

  private PeerProgram add(Kind kind, String setting, Cell cell, double... microseconds) {
    PeerProgram program = new PeerProgram(kind, 2, setting, List.of(), Map.of());
    for (double one : microseconds) {
      measurements.add(program, Map.of(cell, new Measurement(one, 0)));
    }
    return program;
  }

  private String text(Row row) throws Exception {
    return new ReferenceReport(measurements, Set.of(row), 3).text();
  }

  @Test
  void medianOfThePeersBestSettingIsShown() throws Exception {
    Cell cell = new Cell(64 << 10, "untouched");
    add(Kind.OPEN_MPI, "default", cell, 1, 9, 9);
    add(Kind.OPEN_MPI, "ring", cell, 4, 3, 400);
    add(Kind.REFERENCE, "", cell, 123.4);
    String text = text(Row.IN_PROCESS);
    assertTrue(
        text.contains(
            """
            in-process, 2 ranks, inputs untouched:

            |  | 1 KiB | 64 KiB | 1 MiB | 16 MiB | 128 MiB |
            |---|---|---|---|---|---|
            | Open MPI |  | 4.00 ring |  |  |  |
            | nccl4j |  | 123 |  |  |  |
            """),
        text);
  }

  @Test
  void typesAreRelativeToTheFloat32SumOfTheirProgram() throws Exception {
    add(Kind.TYPES, "FLOAT32", new Cell(1 << 20, "float32:sum"), 50);
    add(Kind.TYPES, "FLOAT16", new Cell(1 << 20, "float32:sum"), 60);
    add(Kind.TYPES, "FLOAT16", new Cell(1 << 20, "float16:avg"), 120);
    String text = text(Row.TYPES);
    assertTrue(text.contains("| float16 |  |  |  |  | 0.50 |  |\n"), text);
    assertTrue(text.contains("| float32 | 1.00 |  |  |  |  |  |\n"), text);
  }

  @Test
  void programWithAWrongResultIsReported() throws Exception {
    PeerProgram wrong = add(Kind.GLOO, "bcube", new Cell(1 << 10, "untouched"), 5);
    measurements.leaveOut(wrong);
    String text = text(Row.TCP);
    assertFalse(text.contains("| Gloo |"), text);
    assertTrue(text.contains("- Gloo, 2 ranks, bcube: failed its own check, left out\n"), text);
  }
}
