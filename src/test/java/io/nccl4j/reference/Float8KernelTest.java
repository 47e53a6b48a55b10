package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.MiniFloat;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The sums of all pairs of 8-bit numbers, against one number after the other. */
class Float8KernelTest {
  @ParameterizedTest
  @EnumSource(names = {"FLOAT8E4M3", "FLOAT8E5M2"})
  void everySumIsRoundedToBinary16AndThenToTheType(DataType type) {
    Float8Kernel kernel = new Float8Kernel(type);
    for (int right = 0; right < 256; right++) {
      int[] lefts = new int[64];
      int[] rights = new int[64];
      ByteBuffer bytes = ByteBuffer.allocate(256).order(ByteOrder.nativeOrder());
      for (int left = 0; left < 256; left++) {
        bytes.put(left, (byte) left);
      }
      bytes.asIntBuffer().get(lefts);
      Arrays.fill(rights, right * 0x01010101);
      kernel.sum(lefts, rights, 256);
      bytes.asIntBuffer().put(lefts);
      for (int left = 0; left < 256; left++) {
        String pair = left + " + " + right;
        byte expected = sum(type, (byte) left, (byte) right);
        if (Float.isNaN(value(type, expected))) {
          assertTrue(Float.isNaN(value(type, bytes.get(left))), pair);
        } else {
          assertEquals(expected, bytes.get(left), pair);
        }
      }
    }
  }

  private static float value(DataType type, byte bits) {
    return type == DataType.FLOAT8E4M3
        ? MiniFloat.fromFloat8e4m3(bits)
        : MiniFloat.fromFloat8e5m2(bits);
  }

  private static byte sum(DataType type, byte left, byte right) {
    float exact = value(type, left) + value(type, right);
    float half = MiniFloat.fromFloat16(MiniFloat.toFloat16(exact));
    return type == DataType.FLOAT8E4M3
        ? MiniFloat.toFloat8e4m3(half)
        : MiniFloat.toFloat8e5m2(half);
  }
}
