package io.nccl4j.examples.bandwidth;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class BandwidthTest {
  @Test
  void everySizeHasARowWithATime() throws Exception {
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-cp",
                System.getProperty("java.class.path"),
                Bandwidth.class.getName(),
                "64")
            .redirectErrorStream(true)
            .start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
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
