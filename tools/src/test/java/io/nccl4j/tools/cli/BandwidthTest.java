package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class BandwidthTest {
  @ParameterizedTest
  @CsvSource({
    "450GB/s, 450e9",
    "12.5 GB/s, 12.5e9",
    "1TB/s, 1e12",
    "100MB/s, 100e6",
    "8kB/s, 8e3",
    "7B/s, 7",
    "400Gb/s, 50e9",
    "400Gbit/s, 50e9",
    "100Gbps, 12.5e9",
    ".5GBps, .5e9"
  })
  void bandwidthsAre1000Based(String text, double bytesPerSecond) {
    assertEquals(bytesPerSecond, Bandwidth.parse(text).bytesPerSecond(), bytesPerSecond * 1e-12);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"", "50", "50G", "50GB", "GB/s", "-1GB/s", "1e3GB/s", "50GiB/s", "50 parsecs/s"})
  void invalidBandwidthIsRefused(String text) {
    assertTrue(
        assertThrows(IllegalArgumentException.class, () -> Bandwidth.parse(text))
            .getMessage()
            .startsWith("'" + text + "' is not a bandwidth"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"0GB/s", "0.0b/s"})
  void zeroBandwidthIsRefused(String text) {
    assertEquals(
        "'" + text + "' is 0; a bandwidth must be positive",
        assertThrows(IllegalArgumentException.class, () -> Bandwidth.parse(text)).getMessage());
  }

  @ParameterizedTest
  @ValueSource(doubles = {0, -1, Double.NaN, Double.POSITIVE_INFINITY})
  void invalidNumberIsRefused(double bytesPerSecond) {
    assertThrows(IllegalArgumentException.class, () -> new Bandwidth(bytesPerSecond));
  }
}
