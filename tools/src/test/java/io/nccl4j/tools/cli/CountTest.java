package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class CountTest {
  @Test
  void oneIsSingular() {
    assertEquals("0 ranks", Count.of(0, "rank"));
    assertEquals("1 rank", Count.of(1, "rank"));
    assertEquals("2 ranks", Count.of(2, "rank"));
  }
}
