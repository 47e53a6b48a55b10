package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Tests buffers over direct buffers of {@code java.nio}. */
class DirectBufferTest {
  private static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  private static String refused(java.nio.Buffer memory, DataType type) {
    return assertThrows(IllegalArgumentException.class, () -> Buffer.ofDirectBuffer(memory, type))
        .getMessage();
  }

  @Test
  void elementsAreFromPositionToLimit() {
    FloatBuffer floats = direct(40).asFloatBuffer();
    floats.position(2).limit(7);
    Buffer buffer = Buffer.ofDirectBuffer(floats, DataType.FLOAT32);
    assertEquals(5, buffer.count());
    assertEquals(MemorySegment.ofBuffer(floats).address(), buffer.address());
    assertEquals(Buffer.ANY_DEVICE, buffer.device());
    assertSame(Buffer.MemoryType.HOST, buffer.memoryType());
    DataType.FLOAT32.set(buffer.segment(), 4, 1.5);
    assertEquals(1.5f, floats.get(6));
    assertEquals(2, floats.position());
  }

  @ParameterizedTest
  @EnumSource
  void byteBufferMayHoldAnyType(DataType type) {
    ByteBuffer bytes = direct(24);
    assertEquals(24 / type.bytes(), Buffer.ofDirectBuffer(bytes, type).count());
  }

  static Stream<java.nio.Buffer> typed() {
    return Stream.of(
        direct(8).asFloatBuffer(),
        direct(8).asDoubleBuffer(),
        direct(8).asIntBuffer(),
        direct(8).asLongBuffer(),
        direct(8).asShortBuffer(),
        direct(8).asCharBuffer());
  }

  @ParameterizedTest
  @MethodSource("typed")
  void elementsOfAnotherSizeAreRefused(java.nio.Buffer memory) {
    String message = refused(memory, DataType.INT8);
    assertEquals("type is INT8; the elements of a ", message.substring(0, 32));
  }

  @Test
  void typeMustMatchTheElements() {
    assertEquals(
        "type is INT32; the elements of a FloatBuffer have another type",
        refused(direct(8).asFloatBuffer(), DataType.INT32));
    assertEquals(
        "type is FLOAT64; the elements of a LongBuffer have another type",
        refused(direct(8).asLongBuffer(), DataType.FLOAT64));
    assertEquals(2, Buffer.ofDirectBuffer(direct(8).asIntBuffer(), DataType.UINT32).count());
    assertEquals(4, Buffer.ofDirectBuffer(direct(8).asShortBuffer(), DataType.BFLOAT16).count());
  }

  @Test
  void otherByteOrderIsRefused() {
    ByteOrder other =
        ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN
            ? ByteOrder.BIG_ENDIAN
            : ByteOrder.LITTLE_ENDIAN;
    assertEquals(
        "memory is in the order "
            + other
            + "; it must be in this machine's, "
            + ByteOrder.nativeOrder()
            + ": call order(ByteOrder.nativeOrder()) on the ByteBuffer, also after slice() and"
            + " duplicate()",
        refused(ByteBuffer.allocateDirect(8).order(other).asFloatBuffer(), DataType.FLOAT32));
  }

  @Test
  void heapAndReadOnlyMemoryAreRefused() {
    assertEquals(
        "memory is a FloatBuffer on the Java heap; it must be direct",
        refused(FloatBuffer.allocate(2), DataType.FLOAT32));
    assertEquals(
        "memory is read-only; a buffer needs writable memory",
        refused(direct(8).asReadOnlyBuffer().order(ByteOrder.nativeOrder()), DataType.FLOAT32));
  }

  @Test
  void partialAndMisalignedElementsAreRefused() {
    assertEquals(
        "memory has 7 bytes left; that must be a multiple of 4, the size of FLOAT32",
        refused(direct(7), DataType.FLOAT32));
    String misaligned = refused(direct(9).position(1), DataType.FLOAT32);
    assertTrue(
        misaligned.endsWith("; it must be a multiple of 4, the size of FLOAT32"), misaligned);
  }
}
