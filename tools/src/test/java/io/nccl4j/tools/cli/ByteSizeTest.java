package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ByteSizeTest {
  @ParameterizedTest
  @CsvSource({
    "8, 8",
    "1K, 1024",
    "1k, 1024",
    "128M, 134217728",
    "1.5M, 1572864",
    "2G, 2147483648",
    "0, 0",
    "1KB, 1024",
    "1KiB, 1024",
    "' 64 ', 64",
    "'32 M', 33554432",
    ".5K, 512",
    "1.9, 1",
    "+8, 8",
    "2.K, 2048",
    "1e3, 1000",
    "1.5e-1K, 153",
    "0x10, 16",
    "0x1B, 27",
    "0X.8p5M, 16777216"
  })
  void sizesAre1024Based(String text, long bytes) {
    assertEquals(bytes, ByteSize.parse(text));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"", "K", "1T", "-1", "1 2", "0x", "0xK", "1e", "+-1", "1,5M", "5000000000G"})
  void invalidSizeIsRefused(String text) {
    assertThrows(IllegalArgumentException.class, () -> ByteSize.parse(text));
  }

  @Test
  void sizeIsFormattedInLargestUnit() {
    assertEquals("8 B", ByteSize.text(8));
    assertEquals("1 KiB", ByteSize.text(1024));
    assertEquals("1.5 KiB", ByteSize.text(1536));
    assertEquals("128 MiB", ByteSize.text(128L << 20));
    assertEquals("2048 TiB", ByteSize.text(2L << 50));
  }
}
