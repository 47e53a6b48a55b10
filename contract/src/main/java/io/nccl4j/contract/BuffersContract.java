package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.DeviceType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;

/** Buffers: their contents, ownership and accessibility. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class BuffersContract {
  private Backend backend;
  private Stream stream;

  abstract BackendUnderTest underTest();

  @BeforeAll
  void open() {
    backend = underTest().open(2);
    stream = backend.newStream(0);
  }

  @AfterAll
  void close() {
    stream.close();
    backend.close();
  }

  @Test
  @SuppressWarnings(
      "MustBeClosedChecker") // One arena is closed at once; the other's thread has ended.
  void inaccessibleHostMemoryIsRefusedByName() throws Exception {
    try (Buffer value = backend.newBuffer(0, DataType.INT32, 1)) {
      Arena arena = Arena.ofShared();
      MemorySegment closed = arena.allocate(4);
      arena.close();
      Throwable source =
          assertThrows(IllegalStateException.class, () -> value.copyFromAsync(closed, stream));
      assertEquals("source is in an arena that is closed", source.getMessage());
      AtomicReference<MemorySegment> confined = new AtomicReference<>();
      Thread.ofPlatform().start(() -> confined.set(Arena.ofConfined().allocate(4))).join();
      Throwable target =
          assertThrows(IllegalArgumentException.class, () -> value.copyTo(confined.get(), stream));
      assertTrue(
          target.getMessage().startsWith("target is in a confined arena of another thread"),
          target::toString);
    }
  }

  @Test
  void downloadReturnsUploadedData() {
    for (DataType type : DataType.values()) {
      for (long count : new long[] {0, 1, 3, 1000, 100_003}) {
        MemorySegment data = TestData.bytes(type, 1, count, "upload").get(0);
        try (Buffer buffer = backend.newBuffer(0, type, count)) {
          assertEquals(type, buffer.type());
          assertEquals(count, buffer.count());
          assertEquals(count * type.bytes(), buffer.byteSize());
          assertEquals(0, buffer.device());
          buffer.copyFromAsync(data, stream);
          Expected.bytes(data).check(download(buffer), () -> count + " x " + type);
        }
      }
    }
  }

  @Test
  void offHeapMemoryIsCopied() {
    try (Arena arena = Arena.ofConfined();
        Buffer buffer = backend.newBuffer(0, DataType.INT32, 3)) {
      MemorySegment source = arena.allocateFrom(ValueLayout.JAVA_INT, 1, 2, 3);
      MemorySegment target = arena.allocate(12);
      buffer.copyFromAsync(source, stream);
      buffer.copyTo(target, stream);
      assertEquals(-1, source.mismatch(target));
    }
  }

  @Test
  void sourceMayBeChangedAfterCopyFromReturns() {
    int count = 300_000;
    try (StuckCollective stuck = StuckCollective.prepare(underTest());
        Buffer buffer = stuck.comm().newBuffer(DataType.INT32, count)) {
      stuck.begin();
      int[] source = new int[count];
      Arrays.fill(source, 7);
      buffer.copyFromAsync(MemorySegment.ofArray(source), stuck.stream());
      Arrays.fill(source, -1);
      stuck.join();
      int[] got = new int[count];
      buffer.copyTo(MemorySegment.ofArray(got), stuck.stream());
      assertEquals(7, got[0]);
      assertEquals(7, got[count - 1]);
    }
  }

  @Test
  void sourceMayBeFreedAfterCopyFromReturns() {
    int count = 300_000;
    try (Buffer buffer = backend.newBuffer(0, DataType.INT32, count)) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment source = arena.allocate(4L * count);
        source.fill((byte) 3);
        buffer.copyFromAsync(source, stream);
      }
      MemorySegment got = download(buffer);
      assertEquals(0x03030303, got.get(ValueLayout.JAVA_INT_UNALIGNED, 4L * (count - 1)));
    }
  }

  @Test
  void bufferIsCopiedToAnother() {
    try (Buffer source = ints(1, 2, 3);
        Buffer target = backend.newBuffer(0, DataType.INT32, 3)) {
      target.copyFromAsync(source, stream);
      assertArrayEquals(new int[] {1, 2, 3}, downloadInts(target));
    }
  }

  @Test
  void bufferIsCopiedToAnotherDevice() {
    assumeTrue(backend.devices().size() > 1, "needs two devices");
    try (Buffer source = ints(1, 2, 3);
        Buffer target = backend.newBuffer(1, DataType.INT32, 3);
        Stream targetStream = backend.newStream(1)) {
      stream.synchronize();
      target.copyFromAsync(source, targetStream);
      int[] got = new int[3];
      target.copyTo(MemorySegment.ofArray(got), targetStream);
      assertArrayEquals(new int[] {1, 2, 3}, got);
      target.fill((byte) 0, targetStream);
      targetStream.synchronize();
      target.copyFromAsync(source, stream);
      stream.synchronize();
      target.copyTo(MemorySegment.ofArray(got), targetStream);
      assertArrayEquals(new int[] {1, 2, 3}, got, "in a stream of the source's device");
    }
  }

  @Test
  void fillSetsEveryByte() {
    try (Buffer buffer = backend.newBuffer(0, DataType.INT32, 1000)) {
      buffer.fill((byte) 0xA5, stream);
      for (int value : downloadInts(buffer)) {
        assertEquals(0xA5A5A5A5, value);
      }
    }
  }

  @Test
  void sliceIsViewOfSameMemory() {
    try (Buffer all = ints(0, 1, 2, 3, 4)) {
      Buffer middle = all.slice(1, 3);
      Buffer last = middle.slice(2, 1);
      assertEquals(3, middle.count());
      assertEquals(all.address() + 4, middle.address());
      assertArrayEquals(new int[] {1, 2, 3}, downloadInts(middle));
      last.copyFromAsync(MemorySegment.ofArray(new int[] {9}), stream);
      assertArrayEquals(new int[] {0, 1, 2, 9, 4}, downloadInts(all));
      middle.close();
      assertArrayEquals(new int[] {1, 2, 9}, downloadInts(middle), "closing a view does nothing");
      assertEquals(0, all.slice(5, 0).count());
    }
  }

  @Test
  void sliceOutOfRangeIsRefused() {
    try (Buffer all = ints(0, 1, 2)) {
      for (long[] bad :
          new long[][] {{-1, 1}, {0, -1}, {0, 4}, {3, 1}, {4, 0}, {2, Long.MAX_VALUE}}) {
        Throwable thrown =
            assertThrows(IllegalArgumentException.class, () -> all.slice(bad[0], bad[1]));
        assertEquals(
            "offset %d and elements %d do not lie within the buffer's count of 3"
                .formatted(bad[0], bad[1]),
            thrown.getMessage());
      }
    }
  }

  @Test
  void closedBufferAndItsViewsAreRefusedByName() {
    Buffer buffer = ints(1, 2);
    Buffer view = buffer.slice(0, 1);
    stream.synchronize();
    buffer.close();
    buffer.close();
    try (Buffer other = ints(1, 2);
        Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      for (Buffer closed : new Buffer[] {buffer, view}) {
        MemorySegment host = MemorySegment.ofArray(new byte[(int) closed.byteSize()]);
        refusedAsClosed("buffer", closed::address);
        refusedAsClosed("buffer", closed::segment);
        refusedAsClosed("buffer", () -> closed.slice(0, 0));
        refusedAsClosed("buffer", () -> closed.fill((byte) 0, stream));
        refusedAsClosed("buffer", () -> closed.copyFromAsync(host, stream));
        refusedAsClosed("buffer", () -> closed.copyTo(host, stream));
        refusedAsClosed("this buffer", () -> closed.copyFromAsync(other, stream));
        refusedAsClosed("source", () -> other.copyFromAsync(closed, stream));
        refusedAsClosed("this buffer", () -> closed.copyToAsync(other, stream));
        refusedAsClosed("target", () -> other.copyToAsync(closed, stream));
        refusedAsClosed(
            "send", () -> rank.comm().allReduce(closed, closed, ReduceOp.SUM, rank.stream()));
        refusedAsClosed("recv", () -> rank.comm().broadcast(null, closed, 0, rank.stream()));
      }
    }
  }

  @Test
  void pinnedMemoryIsAccessibleToHostAndDevice() {
    int size = Math.min(2, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), size)) {
      // Allocate before any rank communicates: pinning may wait for the kernels of all ranks.
      Queue<Buffer> allocated = new ConcurrentLinkedQueue<>();
      for (int i = 0; i < size; i++) {
        allocated.add(ranks.backend().newPinnedBuffer(DataType.INT32, 3));
      }
      ranks.each(
          rank -> {
            try (Buffer pinned = allocated.remove()) {
              try (Buffer same = rank.comm().newPinnedBuffer(DataType.INT32, 0)) {
                assertEquals(pinned.memoryType(), same.memoryType());
              }
              assertEquals(Buffer.ANY_DEVICE, pinned.device());
              assertEquals(12, pinned.segment().byteSize());
              pinned.segment().copyFrom(MemorySegment.ofArray(new int[] {1, 2, 3}));
              rank.comm().allReduce(pinned, pinned, ReduceOp.SUM, rank.stream());
              Buffer copy = rank.allocate(DataType.INT32, 3);
              copy.copyFromAsync(pinned, rank.stream());
              rank.stream().synchronize();
              int n = rank.size();
              assertArrayEquals(
                  new int[] {n, 2 * n, 3 * n}, pinned.segment().toArray(ValueLayout.JAVA_INT));
              assertArrayEquals(new int[] {n, 2 * n, 3 * n}, rank.downloadInts(copy));
              pinned.fill((byte) 0, rank.stream());
              copy.slice(0, 3).copyToAsync(pinned, rank.stream());
              assertArrayEquals(new int[] {n, 2 * n, 3 * n}, rank.downloadInts(pinned));
            }
          });
    }
  }

  @Test
  void segmentOfDeviceMemoryIsRefused() {
    try (Buffer buffer = ints(1)) {
      assumeTrue(
          buffer.memoryType() == Buffer.MemoryType.DEVICE, "the devices' memory is the host's own");
      Throwable thrown = assertThrows(IllegalStateException.class, buffer::segment);
      assertTrue(thrown.getMessage().contains("copyTo"), thrown::toString);
    }
  }

  @Test
  void foreignDeviceMemoryIsUsableAsBuffer() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer owner = rank.ints(5, 6, 7);
      assumeTrue(
          owner.memoryType() == Buffer.MemoryType.DEVICE, "the devices' memory is the host's own");
      Buffer view =
          Buffer.ofDeviceAddress(owner.address() + 4, DataType.INT32, 2, rank.comm().device());
      rank.comm().allReduce(view, view, ReduceOp.SUM, rank.stream());
      assertArrayEquals(new int[] {6, 7}, rank.downloadInts(view));
    }
  }

  @Test
  void foreignHostMemoryIsUsableAsBuffer() {
    assumeTrue(backend.deviceType() == DeviceType.HOST, "the devices do not use host memory");
    try (Arena arena = Arena.ofShared();
        Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      MemorySegment memory = arena.allocateFrom(ValueLayout.JAVA_INT, 5, 6);
      int[] released = new int[1];
      Buffer view =
          Buffer.ofHostSegment(memory, DataType.INT32, 2, Buffer.ANY_DEVICE, () -> released[0]++);
      Buffer result = rank.allocate(DataType.INT32, 2);
      rank.comm().allReduce(view, result, ReduceOp.SUM, rank.stream());
      assertArrayEquals(new int[] {5, 6}, rank.downloadInts(result));
      view.close();
      view.close();
      assertEquals(1, released[0]);
    }
  }

  @Test
  void directByteBufferWorksOnEveryRank() {
    assumeTrue(backend.deviceType() == DeviceType.HOST, "the devices do not use host memory");
    try (Ranks ranks = Ranks.of(underTest(), 2)) {
      ranks.each(
          rank -> {
            FloatBuffer direct =
                ByteBuffer.allocateDirect(12).order(ByteOrder.nativeOrder()).asFloatBuffer();
            direct.put(new float[] {rank.rank() + 1, rank.rank(), 7});
            Buffer buffer = Buffer.ofDirectBuffer(direct.flip(), DataType.FLOAT32);
            rank.comm().allReduce(buffer, buffer, ReduceOp.SUM, rank.stream());
            rank.stream().synchronize();
            float[] sums = new float[3];
            direct.get(sums);
            assertArrayEquals(new float[] {3, 1, 14}, sums);
          });
    }
  }

  @Test
  void copyOfWrongSizeIsRefused() {
    try (Buffer buffer = ints(1, 2)) {
      MemorySegment seven = MemorySegment.ofArray(new byte[7]);
      Throwable source =
          assertThrows(IllegalArgumentException.class, () -> buffer.copyFromAsync(seven, stream));
      assertTrue(source.getMessage().startsWith("source has 7 bytes; "), source::toString);
      assertTrue(source.getMessage().endsWith(" has 8"), source::toString);
      Throwable target =
          assertThrows(IllegalArgumentException.class, () -> buffer.copyTo(seven, stream));
      assertTrue(target.getMessage().startsWith("target has 7 bytes; "), target::toString);
    }
  }

  @Test
  void readOnlyTargetIsRefused() {
    try (Buffer buffer = ints(1)) {
      MemorySegment target = MemorySegment.ofArray(new int[1]).asReadOnly();
      Throwable thrown =
          assertThrows(IllegalArgumentException.class, () -> buffer.copyTo(target, stream));
      assertEquals("target is read-only", thrown.getMessage());
    }
  }

  @Test
  void copyBetweenDifferentTypesOrCountsIsRefused() {
    try (Buffer ints = ints(1, 2);
        Buffer fewer = ints(1);
        Buffer floats = backend.newBuffer(0, DataType.FLOAT32, 2)) {
      Throwable type =
          assertThrows(IllegalArgumentException.class, () -> floats.copyFromAsync(ints, stream));
      assertEquals(
          "source has type INT32; it must be FLOAT32, as in this buffer", type.getMessage());
      Throwable count =
          assertThrows(IllegalArgumentException.class, () -> ints.copyFromAsync(fewer, stream));
      assertEquals("source has count 1; this buffer has 2", count.getMessage());
      type = assertThrows(IllegalArgumentException.class, () -> ints.copyToAsync(floats, stream));
      assertEquals(
          "this buffer has type INT32; it must be FLOAT32, as in target", type.getMessage());
      count = assertThrows(IllegalArgumentException.class, () -> fewer.copyToAsync(ints, stream));
      assertEquals("this buffer has count 1; target has 2", count.getMessage());
    }
  }

  @Test
  void streamOfAnotherDeviceIsRefused() {
    assumeTrue(backend.devices().size() > 1, "needs two devices");
    try (Buffer a = ints(1);
        Buffer b = ints(2);
        Stream other = backend.newStream(1)) {
      MemorySegment host = MemorySegment.ofArray(new int[1]);
      for (Executable use :
          new Executable[] {
            () -> a.fill((byte) 0, other),
            () -> a.copyFromAsync(host, other),
            () -> a.copyTo(host, other),
            () -> a.copyFromAsync(b, other),
            () -> a.copyToAsync(b, other)
          }) {
        Throwable thrown = assertThrows(IllegalArgumentException.class, use);
        assertTrue(thrown.getMessage().startsWith("stream "), thrown::toString);
      }
    }
  }

  @Test
  void negativeOrOverflowingCountIsRefused() {
    for (Executable use :
        new Executable[] {
          () -> backend.newBuffer(0, DataType.INT64, -1),
          () -> backend.newPinnedBuffer(DataType.INT64, -1)
        }) {
      Throwable thrown = assertThrows(IllegalArgumentException.class, use);
      assertEquals("count is -1; it must be 0 or more", thrown.getMessage());
    }
    Throwable tooLarge =
        assertThrows(
            IllegalArgumentException.class,
            () -> backend.newBuffer(0, DataType.INT64, Long.MAX_VALUE / 4));
    assertTrue(tooLarge.getMessage().contains("does not fit into a long"), tooLarge::toString);
  }

  @Test
  void excessiveAllocationThrowsOutOfMemory() {
    Throwable thrown =
        assertThrows(Throwable.class, () -> backend.newBuffer(0, DataType.INT64, 1L << 55).close());
    assertTrue(
        thrown instanceof CudaException || thrown instanceof OutOfMemoryError, thrown::toString);
  }

  @Test
  void emptyBufferIsUsable() {
    try (Buffer empty = backend.newBuffer(0, DataType.FLOAT32, 0);
        Buffer other = backend.newBuffer(0, DataType.FLOAT32, 0)) {
      empty.fill((byte) 1, stream);
      empty.copyFromAsync(other, stream);
      assertEquals(0, download(empty).byteSize());
      assertEquals(0, empty.slice(0, 0).byteSize());
    }
  }

  @Test
  void bufferToStringNamesTypeCountAndDevice() {
    try (Buffer buffer = ints(1, 2)) {
      assertTrue(buffer.toString().startsWith("Buffer[INT32 x 2, "), buffer::toString);
      assertTrue(buffer.toString().contains("device 0"), buffer::toString);
      assertSame(backend.deviceType(), buffer.memoryType().deviceType());
      assertNotEquals(0, buffer.address());
    }
  }

  private Buffer ints(int... values) {
    Buffer buffer = backend.newBuffer(0, DataType.INT32, values.length);
    buffer.copyFromAsync(MemorySegment.ofArray(values), stream);
    return buffer;
  }

  private int[] downloadInts(Buffer buffer) {
    return download(buffer).toArray(ValueLayout.JAVA_INT_UNALIGNED);
  }

  private MemorySegment download(Buffer buffer) {
    MemorySegment host = MemorySegment.ofArray(new byte[(int) buffer.byteSize()]);
    buffer.copyTo(host, stream);
    return host;
  }

  private static void refusedAsClosed(String owner, Executable use) {
    Throwable thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(thrown.getMessage().startsWith(owner + " is closed"), thrown::toString);
  }
}
