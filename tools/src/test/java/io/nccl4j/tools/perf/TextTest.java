package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Numbers are formatted as by printf. */
class TextTest {
  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "1, 1",
    "16384, 16384",
    "999999, 999999",
    "1000000, 1e+06",
    "1234567, 1.23457e+06",
    "0.423625, 0.423625",
    "1.874720001, 1.87472",
    "0.0001, 0.0001",
    "0.00001, 1e-05",
    "0.000825315, 0.000825315",
    "100, 100",
    "33554432, 3.35544e+07",
    "999999.5, 1e+06",
    "12.5, 12.5",
    "1e100, 1e+100"
  })
  void generalMatchesPrintf(double value, String expected) {
    assertEquals(expected, Text.general(value));
  }

  @ParameterizedTest
  @CsvSource({
    "1.234, 7, '   1.23'", "2024.13, 7, 2024.13", "25814.31, 7, 25814.3", "123456.7, 7, ' 123457'",
    "1234567.8, 7, 1234568", "12345678, 7, 1.2e+07", "NaN, 7, '    nan'", "1234.56, 6, 1234.6",
    "1234567, 6, ' 1e+06'", "0, 6, '  0.00'"
  })
  void columnHasAsManyDecimalsAsFit(double value, int width, String expected) {
    assertEquals(expected, Text.column(value, width));
  }
}
