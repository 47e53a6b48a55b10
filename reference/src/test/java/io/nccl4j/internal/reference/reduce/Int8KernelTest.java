package io.nccl4j.internal.reference.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Compares averages, which divide eight numbers at a time, with scalar division. */
class Int8KernelTest {
  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4, 7, 8, 16, 17, 32, 64, 100, 128, 200, 256, 1024})
  void averagesTruncate(int ranks) {
    byte[] signed = new byte[256];
    byte[] unsigned = new byte[256];
    byte[] signedQuotients = new byte[256];
    byte[] unsignedQuotients = new byte[256];
    for (int value = 0; value < 256; value++) {
      // Neighbours differ in sign, so that a carry into the next byte changes a result.
      byte sum = (byte) (value * 129);
      signed[value] = sum;
      unsigned[value] = sum;
      signedQuotients[value] = (byte) (sum / ranks);
      unsignedQuotients[value] = (byte) ((sum & 0xFF) / ranks);
    }
    new Int8Kernel(false).divide(signed, ranks, signed.length);
    new Int8Kernel(true).divide(unsigned, ranks, unsigned.length);
    assertArrayEquals(signedQuotients, signed);
    assertArrayEquals(unsignedQuotients, unsigned);
  }
}
