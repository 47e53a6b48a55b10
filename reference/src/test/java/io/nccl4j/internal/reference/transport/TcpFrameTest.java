package io.nccl4j.internal.reference.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

/** Tests the header of a slice, and the checks of the receiver. */
class TcpFrameTest {
  private final ByteBuffer frame = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);

  @Test
  void writtenHeaderIsRead() {
    TcpFrame.write(frame, 32, 100, 7, -5);
    assertNull(TcpFrame.check(frame, 32, 7, 100));
    assertEquals(100, TcpFrame.bytes(frame, 32));
    assertEquals(-5, TcpFrame.signature(frame, 32));
  }

  @Test
  void sliceIsPaddedToWholeHeaders() {
    assertEquals(32, TcpFrame.size(0));
    assertEquals(64, TcpFrame.size(1));
    assertEquals(64, TcpFrame.size(32));
    assertEquals(96, TcpFrame.size(33));
  }

  @Test
  void otherByteOrderFailsAtTheMagicNumber() {
    TcpFrame.write(frame, 0, 100, 0, 0);
    frame.order(ByteOrder.BIG_ENDIAN);
    assertEquals(
        "slice 0 has magic 0x4b34434e; it must be 0x4e43344b", TcpFrame.check(frame, 0, 0, 100));
  }

  @Test
  void sliceOutOfOrderIsRefused() {
    TcpFrame.write(frame, 0, 100, 9, 0);
    assertEquals("it sent slice 9 instead of 8", TcpFrame.check(frame, 0, 8, 100));
  }

  @Test
  void invalidSizeIsRefused() {
    TcpFrame.write(frame, 0, 101, 1, 0);
    assertEquals("slice 1 has 101 bytes; the maximum is 100", TcpFrame.check(frame, 0, 1, 100));
    TcpFrame.write(frame, 0, -1, 1, 0);
    assertEquals("slice 1 has -1 bytes; the maximum is 100", TcpFrame.check(frame, 0, 1, 100));
  }
}
