package io.nccl4j.benchmarks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class SizingTest {
  @Test
  void parseReadsWhatToStringWrites() {
    Sizing size = new Sizing(16 << 20, 100, 9, 10);
    assertEquals("16777216:100:9:10", size.toString());
    assertEquals(size, Sizing.parse(size.toString()));
  }

  @Test
  void missingNumberIsAnError() {
    IllegalArgumentException thrown =
        assertThrows(IllegalArgumentException.class, () -> Sizing.parse("1024:5:9"));
    assertEquals(
        "size is '1024:5:9'; it must be BYTES:WARM_UPS:BATCHES:OPERATIONS", thrown.getMessage());
  }
}
