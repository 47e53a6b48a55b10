package io.nccl4j.examples.bandwidth;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class BandwidthTest {
  @Test
  void everySizeHasARowWithATime() throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(
            new ProcessBuilder(FinishedProgram.java(Bandwidth.class.getName(), "64")));
    String said = ended.out();
    assertEquals(0, ended.status(), ended.output());
    assertTrue(said.contains(" ranks\n#    bytes"), said);
    List<String[]> rows =
        said.lines()
            .filter(line -> line.matches(" *[0-9]+ .*"))
            .map(line -> line.strip().split(" +", -1))
            .toList();
    assertEquals(List.of("8", "16", "32", "64"), rows.stream().map(row -> row[0]).toList(), said);
    for (String[] row : rows) {
      assertEquals(4, row.length, Arrays.toString(row));
      assertTrue(Double.parseDouble(row[1]) > 0, said);
    }
  }
}
