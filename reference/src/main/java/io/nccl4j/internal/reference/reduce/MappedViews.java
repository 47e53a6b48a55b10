package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Function;

/**
 * A cache of {@code java.nio} buffers, of 1 GiB each, through which the loops of one worker thread
 * read memory.
 *
 * <p>The JIT compiler vectorizes a loop that loads from such a buffer and stores to an array if it
 * can prove that no index overflows. Loads from a memory segment are vectorized for integers only:
 * floating-point numbers are loaded as integers and reinterpreted one by one.
 *
 * <p>A view keeps its memory reachable. It is cached for the next operation on the same memory, so
 * that in steady state none is created; a thread that is idle for a while drops all its views.
 */
public final class MappedViews {
  /** The maximum number of bytes that may be read from the requested offset. */
  static final int BLOCK_BYTES = 1 << 20;

  private static final long BYTES = 1L << 30;
  private static final int WAYS = 4;
  private static final int SETS = 32;

  private static final ThreadLocal<MappedViews> OF_THREAD =
      ThreadLocal.withInitial(MappedViews::new);

  private record MappedView(
      MemorySegment memory, long index, Function<ByteBuffer, ?> type, Buffer buffer) {

    boolean is(MemorySegment otherMemory, long otherIndex, Function<ByteBuffer, ?> otherType) {
      return memory == otherMemory && index == otherIndex && type == otherType;
    }
  }

  private final MappedView[] views = new MappedView[SETS * WAYS];
  private int replaced;

  private MappedViews() {}

  static MappedViews ofThread() {
    return OF_THREAD.get();
  }

  /**
   * Returns the view that contains an offset of a memory segment.
   *
   * @param type creates a buffer of elements from a buffer of bytes; must be the same object in
   *     every call
   */
  @SuppressWarnings("unchecked") // The type has created the buffer.
  <B extends Buffer> B view(MemorySegment memory, long offset, Function<ByteBuffer, B> type) {
    long index = offset / BYTES;
    int set = (System.identityHashCode(memory) + (int) index) & (SETS - 1);
    for (int at = set * WAYS; at < (set + 1) * WAYS; at++) {
      MappedView view = views[at];
      if (view != null && view.is(memory, index, type)) {
        return (B) view.buffer;
      }
    }
    B buffer = type.apply(bytes(memory, index * BYTES));
    views[set * WAYS + (replaced++ & (WAYS - 1))] = new MappedView(memory, index, type, buffer);
    return buffer;
  }

  private static ByteBuffer bytes(MemorySegment memory, long begin) {
    long size = Math.min(BYTES + BLOCK_BYTES, memory.byteSize() - begin);
    return memory.asSlice(begin, size).asByteBuffer().order(ByteOrder.nativeOrder());
  }

  /** Returns the offset at which the view that contains an offset begins. */
  static long begin(long offset) {
    return offset / BYTES * BYTES;
  }

  /** Drops all views of the calling thread; allocates nothing. */
  public static void forgetOfThread() {
    OF_THREAD.remove();
  }
}
