package io.nccl4j.internal.reference.reduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.reference.SoftArithmetic;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Compares the results of all pairs of 8-bit numbers with exact scalar arithmetic. */
class Float8KernelTest {
  private static final int VALUES = 256;
  private static final int PAIRS = VALUES * VALUES;

  static Stream<Arguments> reductions() {
    return Stream.of(DataType.FLOAT8E4M3, DataType.FLOAT8E5M2)
        .flatMap(type -> Stream.of(SoftArithmetic.Op.values()).map(op -> Arguments.of(type, op)));
  }

  @ParameterizedTest
  @MethodSource("reductions")
  void everyPairIsRoundedThroughBinary16(DataType type, SoftArithmetic.Op op) {
    byte[] lefts = new byte[PAIRS];
    byte[] rights = new byte[PAIRS];
    for (int pair = 0; pair < PAIRS; pair++) {
      lefts[pair] = (byte) (pair / VALUES);
      rights[pair] = (byte) pair;
    }
    byte[] results = combined(type, op, lefts, rights);
    SoftArithmetic exact = new SoftArithmetic(type);
    for (int pair = 0; pair < PAIRS; pair++) {
      double left = value(type, lefts[pair]);
      double right = value(type, rights[pair]);
      double expected = exact.combine(op, left, right);
      assertSame(type, expected, results[pair], left + " " + op + " " + right);
    }
  }

  private static byte[] combined(DataType type, SoftArithmetic.Op op, byte[] lefts, byte[] rights) {
    ReductionOp.Kind kind = ReductionOp.Kind.valueOf(op.name());
    Kernel<?> kernel = Kernels.of(type);
    MemorySegment left = copy(lefts);
    MemorySegment right = copy(rights);
    kernel.combine(kind, left, 0, false, 0, right, 0, left, 0, lefts.length, 1);
    return left.toArray(ValueLayout.JAVA_BYTE);
  }

  @ParameterizedTest
  @EnumSource(names = {"FLOAT8E4M3", "FLOAT8E5M2"})
  void everyProductIsRoundedThroughBinary16(DataType type) {
    Kernel<?> kernel = Kernels.of(type);
    SoftArithmetic exact = new SoftArithmetic(type);
    byte[] values = new byte[VALUES];
    for (int value = 0; value < VALUES; value++) {
      values[value] = (byte) value;
    }
    MemorySegment from = copy(values);
    MemorySegment to = copy(values);
    for (int factor = 0; factor < VALUES; factor++) {
      kernel.scale(factor, from, 0, to, 0, VALUES);
      for (int value = 0; value < VALUES; value++) {
        double expected = exact.multiply(value(type, (byte) value), value(type, (byte) factor));
        byte found = to.get(ValueLayout.JAVA_BYTE, value);
        assertSame(type, expected, found, value + " * " + factor);
      }
    }
  }

  private static MemorySegment copy(byte[] bytes) {
    return Arena.ofAuto().allocate(bytes.length, 64).copyFrom(MemorySegment.ofArray(bytes));
  }

  private static double value(DataType type, byte bits) {
    return type.get(MemorySegment.ofArray(new byte[] {bits}), 0);
  }

  private static void assertSame(DataType type, double expected, byte bits, String what) {
    double found = value(type, bits);
    if (Double.isNaN(expected)) {
      assertTrue(Double.isNaN(found), what);
    } else {
      assertEquals(Double.doubleToLongBits(expected), Double.doubleToLongBits(found), what);
    }
  }
}
