package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.MemorySegment;
import java.math.BigDecimal;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class DataTypeTest {
  @Test
  void codesAndSizesMatchNccl() {
    int[] sizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    DataType[] types = DataType.values();
    assertEquals(sizes.length, types.length);
    for (int code = 0; code < sizes.length; code++) {
      assertEquals(code, types[code].code());
      assertEquals(sizes[code], types[code].bytes());
      assertEquals(types[code].name().contains("FLOAT"), types[code].floating());
      assertEquals(types[code].name().contains("FLOAT8"), types[code].float8());
    }
  }

  @ParameterizedTest
  @EnumSource
  void elementsArePackedLittleEndianAtAnyAlignment(DataType type) {
    byte[] memory = new byte[1 + 3 * type.bytes()];
    MemorySegment unaligned = MemorySegment.ofArray(memory).asSlice(1);
    type.set(unaligned, 1, 1);
    assertEquals(0, type.get(unaligned, 0));
    assertEquals(1, type.get(unaligned, 1));
    assertEquals(0, type.get(unaligned, 2));
    byte[] one =
        switch (type) {
          case FLOAT16 -> new byte[] {0, 0x3C};
          case BFLOAT16 -> new byte[] {(byte) 0x80, 0x3F};
          case FLOAT32 -> new byte[] {0, 0, (byte) 0x80, 0x3F};
          case FLOAT64 -> new byte[] {0, 0, 0, 0, 0, 0, (byte) 0xF0, 0x3F};
          case FLOAT8E4M3 -> new byte[] {0x38};
          case FLOAT8E5M2 -> new byte[] {0x3C};
          default -> Arrays.copyOf(new byte[] {1}, type.bytes());
        };
    assertArrayEquals(one, Arrays.copyOfRange(memory, 1 + type.bytes(), 1 + 2 * type.bytes()));
  }

  @Test
  void wholeRangeOfIntegersIsWritten() {
    assertEquals(-128, setThenGetLong(DataType.INT8, -128));
    assertEquals(255, setThenGetLong(DataType.UINT8, 255));
    assertEquals(Integer.MIN_VALUE, setThenGetLong(DataType.INT32, Integer.MIN_VALUE));
    assertEquals((1L << 32) - 1, setThenGetLong(DataType.UINT32, (1L << 32) - 1));
    assertEquals(Long.MIN_VALUE, setThenGetLong(DataType.INT64, Long.MIN_VALUE));
    assertEquals(-1, setThenGetLong(DataType.UINT64, -1));
    assertEquals(-0x1p63, setThenGet(DataType.INT64, -0x1p63));
  }

  @Test
  void uint64ValuesAreReadAsPositiveDoublesRoundedOnce() {
    MemorySegment segment = MemorySegment.ofArray(new byte[8]);
    for (long bits :
        new long[] {
          -1,
          Long.MIN_VALUE,
          Long.MIN_VALUE + 1,
          Long.MIN_VALUE + 1024,
          Long.MIN_VALUE + 1025,
          Long.MIN_VALUE + 3072,
          Long.MAX_VALUE,
          0,
          1
        }) {
      DataType.UINT64.setLong(segment, 0, bits);
      double expected = new BigDecimal(Long.toUnsignedString(bits)).doubleValue();
      assertEquals(expected, DataType.UINT64.get(segment, 0), Long.toUnsignedString(bits));
    }
  }

  @Test
  void uint64ValuesAreWrittenFromDoublesAboveLongMax() {
    MemorySegment segment = MemorySegment.ofArray(new byte[8]);
    for (double value : new double[] {0, 1, 0x1p62, 0x1p63, 0x1.8p63, 0x1.fffffffffffffp63}) {
      DataType.UINT64.set(segment, 0, value);
      assertEquals(
          new BigDecimal(value).toBigInteger().longValue(),
          DataType.UINT64.getLong(segment, 0),
          () -> "of " + value);
    }
  }

  @Test
  void floatsAreNotReadAsLongs() {
    MemorySegment segment = MemorySegment.ofArray(new byte[8]);
    for (DataType type : DataType.values()) {
      if (type.floating()) {
        assertThrows(IllegalStateException.class, () -> type.getLong(segment, 0));
        assertThrows(IllegalStateException.class, () -> type.setLong(segment, 0, 1));
      }
    }
  }

  @Test
  void float32AndFloat64RoundAsJavaDoes() {
    assertEquals(0.1f, setThenGet(DataType.FLOAT32, 0.1));
    assertEquals(0.1, setThenGet(DataType.FLOAT64, 0.1));
    assertEquals(Double.NaN, setThenGet(DataType.FLOAT32, Double.NaN));
  }

  @ParameterizedTest
  @EnumSource
  void nonFiniteValuesOfFloatsAreWritten(DataType type) {
    if (type.floating()) {
      assertEquals(Double.NaN, setThenGet(type, Double.NaN));
    }
    if (type.floating() && type != DataType.FLOAT8E4M3) {
      assertEquals(Double.POSITIVE_INFINITY, setThenGet(type, Double.POSITIVE_INFINITY));
      assertEquals(Double.NEGATIVE_INFINITY, setThenGet(type, Double.NEGATIVE_INFINITY));
    }
  }

  private static long setThenGetLong(DataType type, long value) {
    MemorySegment segment = MemorySegment.ofArray(new byte[type.bytes()]);
    type.setLong(segment, 0, value);
    return type.getLong(segment, 0);
  }

  private static double setThenGet(DataType type, double value) {
    MemorySegment segment = MemorySegment.ofArray(new byte[type.bytes()]);
    type.set(segment, 0, value);
    return type.get(segment, 0);
  }
}
