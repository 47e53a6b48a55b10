package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Tests buffers over foreign memory, which need no backend. */
class BufferTest {
  private final AtomicInteger released = new AtomicInteger();

  @Test
  void deviceAddressIsNotDereferenced() {
    Buffer buffer =
        Buffer.ofDeviceAddress(0x7000, DataType.FLOAT32, 10, 1, released::incrementAndGet);
    assertEquals(0x7000, buffer.address());
    assertEquals(10, buffer.count());
    assertEquals(40, buffer.byteSize());
    assertEquals(1, buffer.device());
    assertSame(Buffer.MemoryType.DEVICE, buffer.memoryType());
    assertEquals(0x7000 + 8, buffer.slice(2, 8).address());
    assertEquals("Buffer[FLOAT32 x 10, DEVICE device 1, 0x7000]", buffer.toString());
  }

  @Test
  void releaseRunsOnceAndNotForSlices() {
    Buffer buffer =
        Buffer.ofDeviceAddress(0x7000, DataType.FLOAT32, 10, 0, released::incrementAndGet);
    Buffer view = buffer.slice(0, 1);
    view.close();
    assertEquals(0, released.get());
    buffer.close();
    buffer.close();
    assertEquals(1, released.get());
    assertThrows(IllegalStateException.class, view::address);
  }

  @Test
  void hostMemoryMustBeWritableAndShared() {
    try (Arena confined = Arena.ofConfined();
        Arena shared = Arena.ofShared()) {
      Throwable confinedError =
          assertThrows(
              IllegalArgumentException.class,
              () -> Buffer.ofHostSegment(confined.allocate(8, 8), DataType.INT64, 1, 0, () -> {}));
      assertTrue(
          confinedError.getMessage().startsWith("memory belongs to one thread"),
          confinedError::toString);
      Throwable readOnlyError =
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  Buffer.ofPinnedSegment(
                      shared.allocate(8, 8).asReadOnly(), DataType.INT64, 1, () -> {}));
      assertEquals(
          "memory is read-only; a buffer needs writable memory", readOnlyError.getMessage());
    }
  }

  @Test
  void addressMustBeAligned() {
    Throwable misaligned =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofDeviceAddress(0x7001, DataType.FLOAT32, 1, 0));
    assertEquals(
        "address is 0x7001; it must be a multiple of 4, the size of FLOAT32",
        misaligned.getMessage());
    Throwable zero =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofDeviceAddress(0, DataType.FLOAT32, 1, 0));
    assertEquals("address is 0; it must be the address of 1 elements", zero.getMessage());
    assertEquals(0, Buffer.ofDeviceAddress(0, DataType.FLOAT32, 0, 0).count());
  }

  @Test
  void negativeCountAndDeviceAreRefused() {
    Throwable count =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofDeviceAddress(0x7000, DataType.INT8, -1, 0));
    assertEquals("count is -1; it must be 0 or more", count.getMessage());
    Throwable device =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofDeviceAddress(0x7000, DataType.INT8, 1, -1));
    assertEquals("device is -1; it must be 0 or more", device.getMessage());
    assertThrows(NullPointerException.class, () -> Buffer.ofDeviceAddress(0x7000, null, 1, 0));
  }

  @Test
  void hostMemoryMustBeNativeAndLargeEnough() {
    MemorySegment heap = MemorySegment.ofArray(new float[4]);
    Throwable onHeap =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofHostSegment(heap, DataType.FLOAT32, 4, 0, () -> {}));
    assertEquals("memory is on the Java heap; a buffer needs native memory", onHeap.getMessage());
    try (Arena arena = Arena.ofShared()) {
      MemorySegment memory = arena.allocate(16, 8);
      Throwable tooSmall =
          assertThrows(
              IllegalArgumentException.class,
              () -> Buffer.ofHostSegment(memory, DataType.FLOAT32, 5, 0, () -> {}));
      assertEquals("memory has 16 bytes; 5 elements of FLOAT32 need 20", tooSmall.getMessage());
      Buffer three = Buffer.ofHostSegment(memory, DataType.FLOAT32, 3, 0, () -> {});
      assertEquals(12, three.segment().byteSize(), "the segment ends with the last element");
      assertThrows(
          IllegalArgumentException.class,
          () -> Buffer.ofHostSegment(memory, DataType.FLOAT32, 3, -2, () -> {}));
    }
  }

  @Test
  void freedMemoryIsRefused() {
    MemorySegment memory;
    try (Arena arena = Arena.ofShared()) {
      memory = arena.allocate(16, 8);
    }
    Throwable freed =
        assertThrows(
            IllegalArgumentException.class,
            () -> Buffer.ofHostSegment(memory, DataType.FLOAT32, 4));
    assertEquals(
        "memory was freed, because its arena is closed; a buffer needs memory that is still allocated",
        freed.getMessage());
  }

  @Test
  void pinnedMemoryBelongsToNoDevice() {
    try (Arena arena = Arena.ofShared()) {
      Buffer pinned = Buffer.ofPinnedSegment(arena.allocate(16, 8), DataType.INT64, 2, () -> {});
      assertEquals(Buffer.ANY_DEVICE, pinned.device());
      assertSame(DeviceType.CUDA, pinned.memoryType().deviceType());
      assertTrue(pinned.toString().contains("PINNED any device"), pinned::toString);
    }
  }

  @Test
  void retainedBufferCannotBeClosed() {
    Buffer buffer =
        Buffer.ofDeviceAddress(0x7000, DataType.FLOAT32, 10, 1, released::incrementAndGet);
    Runnable first = buffer.retain("the first holder");
    Runnable second = buffer.slice(2, 3).retain("the second holder");
    IllegalStateException refused = assertThrows(IllegalStateException.class, buffer::close);
    assertEquals(
        "Buffer[FLOAT32 x 10, DEVICE device 1, 0x7000] cannot be closed: "
            + "the first holder still uses its memory",
        refused.getMessage());
    first.run();
    first.run();
    assertThrows(IllegalStateException.class, buffer::close);
    assertEquals(0, released.get());
    assertEquals(0x7000, buffer.address(), "a refused close leaves the buffer open");
    second.run();
    buffer.close();
    assertEquals(1, released.get());
    assertThrows(IllegalStateException.class, () -> buffer.retain("a late holder"));
  }

  @Test
  void closedBufferDropsItsReleaseAction() throws InterruptedException {
    CompletableFuture<WeakReference<Object>> tensor = new CompletableFuture<>();
    Buffer buffer = ofTensor(tensor);
    WeakReference<Object> tensorReference = tensor.join();
    buffer.close();
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (tensorReference.get() != null && System.nanoTime() < end) {
      System.gc();
      Thread.sleep(1);
    }
    assertNull(tensorReference.get(), () -> "still referenced by " + buffer);
  }

  /** Returns a buffer whose release action holds the only reference to an object. */
  private static Buffer ofTensor(CompletableFuture<WeakReference<Object>> made) {
    byte[] tensor = new byte[1 << 20];
    made.complete(new WeakReference<>(tensor));
    return Buffer.ofDeviceAddress(
        0x7000, DataType.INT8, tensor.length, 0, () -> assertEquals(1 << 20, tensor.length));
  }
}
