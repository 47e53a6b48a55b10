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
    String out = ended.out();
    assertEquals(0, ended.status(), ended.output());
    assertTrue(out.contains(" ranks\n#    bytes"), out);
    List<String[]> rows =
        out.lines()
            .filter(line -> line.matches(" *[0-9]+ .*"))
            .map(line -> line.strip().split(" +", -1))
            .toList();
    assertEquals(List.of("8", "16", "32", "64"), rows.stream().map(row -> row[0]).toList(), out);
    for (String[] row : rows) {
      assertEquals(4, row.length, Arrays.toString(row));
      assertTrue(Double.parseDouble(row[1]) > 0, out);
    }
  }
}
