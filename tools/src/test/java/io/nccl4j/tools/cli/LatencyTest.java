package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class LatencyTest {
  @ParameterizedTest
  @CsvSource({"5us, 5e-6", "5 \u00b5s, 5e-6", "300ns, 3e-7", "1.5ms, 1.5e-3", "2s, 2", "0us, 0"})
  void latenciesHaveUnits(String text, double seconds) {
    assertEquals(seconds, Latency.parse(text).seconds(), seconds * 1e-12);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "5", "us", "-5us", "5m", "1e3us", "5 parsecs"})
  void invalidLatencyIsRefused(String text) {
    assertTrue(
        assertThrows(IllegalArgumentException.class, () -> Latency.parse(text))
            .getMessage()
            .startsWith("'" + text + "' is not a latency"));
  }

  @ParameterizedTest
  @ValueSource(doubles = {-1, Double.NaN, Double.POSITIVE_INFINITY})
  void invalidNumberIsRefused(double seconds) {
    assertThrows(IllegalArgumentException.class, () -> new Latency(seconds));
  }
}
