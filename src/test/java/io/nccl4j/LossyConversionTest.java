package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/**
 * Values that an entry point would have to change to use them: they are refused, with the value and
 * the rule. {@code PreMulSumContract} has the factors of operators.
 */
class LossyConversionTest {
  private static final Duration LONGEST = Duration.ofSeconds(Long.MAX_VALUE);

  private record Refused(String call, Executable use, String message) {}

  private final List<Refused> table = new ArrayList<>();

  private void add(String call, Executable use, String message) {
    table.add(new Refused(call, use, message));
  }

  private void addElement(DataType type, double value, String rule) {
    MemorySegment cell = MemorySegment.ofArray(new long[1]);
    add(
        type + ".set " + value,
        () -> type.set(cell, 0, value),
        "value is " + value + "; " + type + " holds " + rule);
    if (!type.floating() && value == (long) value) {
      add(
          type + ".setLong " + value,
          () -> type.setLong(cell, 0, (long) value),
          "value is " + value + "; " + type + " holds " + rule);
    }
  }

  private void addOrder(String call, java.nio.Buffer memory, DataType type) {
    add(
        call,
        () -> Buffer.ofDirectBuffer(memory, type),
        "memory is in the order BIG_ENDIAN; it must be in this machine's, LITTLE_ENDIAN: call"
            + " order(ByteOrder.nativeOrder()) on the ByteBuffer, also after slice() and"
            + " duplicate()");
  }

  @Test
  void valueThatWouldBeChangedIsRefused() {
    elements();
    byteOrders();
    limits();
    assertAll(
        table.stream()
            .map(
                each ->
                    () ->
                        assertEquals(
                            each.message(),
                            assertThrows(Throwable.class, each.use(), each.call()).getMessage(),
                            each.call())));
  }

  private void elements() {
    addElement(DataType.INT8, 128, "whole numbers from -128 to 127");
    addElement(DataType.UINT8, -1, "whole numbers from 0 to 255");
    addElement(DataType.INT32, 2.9, "whole numbers from -2147483648 to 2147483647");
    addElement(DataType.INT32, -0x1p31 - 1, "whole numbers from -2147483648 to 2147483647");
    addElement(DataType.UINT32, -1, "whole numbers from 0 to 4294967295");
    addElement(
        DataType.INT64,
        Double.NaN,
        "whole numbers from -9223372036854775808 to 9223372036854775807");
    addElement(DataType.UINT64, 0x1p64, "whole numbers from 0 to 18446744073709551615");
    addElement(DataType.FLOAT16, 65520, "NaN, infinities and numbers from -65504.0 to 65504.0");
    addElement(
        DataType.BFLOAT16,
        Float.MAX_VALUE,
        "NaN, infinities and numbers from -3.3895313892515355E38 to 3.3895313892515355E38");
    addElement(
        DataType.FLOAT32,
        1e300,
        "NaN, infinities and numbers from -3.4028234663852886E38 to 3.4028234663852886E38");
    addElement(
        DataType.FLOAT8E4M3, Double.POSITIVE_INFINITY, "NaN and numbers from -448.0 to 448.0");
    addElement(DataType.FLOAT8E4M3, 1000, "NaN and numbers from -448.0 to 448.0");
    addElement(DataType.FLOAT8E5M2, -1e5, "NaN, infinities and numbers from -57344.0 to 57344.0");
    // 2^62 * 4 bytes is 2^64, which is 0 in a long.
    MemorySegment one = MemorySegment.ofArray(new float[] {42});
    String outside = "Index 4611686018427387904 out of bounds for length 1";
    add("get", () -> DataType.FLOAT32.get(one, 1L << 62), outside);
    add("set", () -> DataType.FLOAT32.set(one, 1L << 62, 1), outside);
    add("getLong", () -> DataType.INT32.getLong(one, 1L << 62), outside);
    add("setLong", () -> DataType.INT32.setLong(one, 1L << 62, 1), outside);
  }

  private void byteOrders() {
    ByteBuffer big = ByteBuffer.allocateDirect(16);
    ByteBuffer little = ByteBuffer.allocateDirect(16).order(ByteOrder.LITTLE_ENDIAN);
    addOrder("new ByteBuffer", big, DataType.FLOAT32);
    addOrder("view of a new ByteBuffer", big.asFloatBuffer(), DataType.FLOAT32);
    addOrder("16-bit view", big.asShortBuffer(), DataType.BFLOAT16);
    addOrder("slice", little.slice(4, 8), DataType.FLOAT32);
    addOrder("duplicate", little.duplicate(), DataType.INT64);
    addOrder("read-only view", little.asReadOnlyBuffer(), DataType.INT32);
    add(
        "heap memory",
        () -> Buffer.ofDirectBuffer(ByteBuffer.allocate(8), DataType.FLOAT32),
        "memory is a ByteBuffer on the Java heap; it must be direct");
    add(
        "elements of another kind",
        () -> Buffer.ofDirectBuffer(little.asIntBuffer(), DataType.FLOAT32),
        "type is FLOAT32; the elements of a IntBuffer have another type");
    add(
        "half an element",
        () -> Buffer.ofDirectBuffer(little.slice(0, 6).order(little.order()), DataType.FLOAT32),
        "memory has 6 bytes left; that must be a multiple of 4, the size of FLOAT32");
  }

  private void limits() {
    add(
        "too long a timeout",
        () -> CommunicatorConfig.defaults().withTimeout(LONGEST),
        "timeout is PT2562047788015215H30M7S; it must be at most 36500 days");
    add(
        "size beyond a long",
        () -> DataType.FLOAT32.byteSize(1L << 62),
        "count is 4611686018427387904; the size of that many elements of FLOAT32 in bytes does not"
            + " fit into a long");
  }

  @Test
  void singleBytesHaveNoOrder() {
    ByteBuffer big = ByteBuffer.allocateDirect(16);
    for (DataType type :
        new DataType[] {DataType.INT8, DataType.UINT8, DataType.FLOAT8E4M3, DataType.FLOAT8E5M2}) {
      assertEquals(16, Buffer.ofDirectBuffer(big, type).count());
    }
  }
}
