package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Function;

/**
 * What one worker thread's loops read memory through: buffers of {@code java.nio}, of 1 GiB each.
 *
 * <p>The compiler vectorizes a loop that loads from such a buffer and stores to an array, if it
 * knows that no index overflows. From a memory segment it loads integers as well, but
 * floating-point numbers only as integers that are then reinterpreted one by one.
 *
 * <p>A window keeps its memory reachable, and is kept for the next operation on the same memory, so
 * that in steady state none is made; a thread that has nothing to do for a while forgets all.
 */
public final class MappedViews {
  /** How much at most may be read from where a window was asked for. */
  static final int BLOCK_BYTES = 1 << 20;

  private static final long BYTES = 1L << 30;
  private static final int WAYS = 4;
  private static final int SETS = 32;

  private static final ThreadLocal<MappedViews> OF_THREAD =
      ThreadLocal.withInitial(MappedViews::new);

  private record MappedView(
      MemorySegment memory, long number, Function<ByteBuffer, ?> type, Buffer buffer) {

    boolean is(MemorySegment otherMemory, long otherNumber, Function<ByteBuffer, ?> otherType) {
      return memory == otherMemory && number == otherNumber && type == otherType;
    }
  }

  private final MappedView[] windows = new MappedView[SETS * WAYS];
  private int replaced;

  private MappedViews() {}

  static MappedViews ofThread() {
    return OF_THREAD.get();
  }

  /**
   * Returns the window that a place of some memory lies in.
   *
   * @param type makes a buffer of elements from one of bytes; the same object each time
   */
  @SuppressWarnings("unchecked") // The type has made the buffer.
  <B extends Buffer> B window(MemorySegment memory, long offset, Function<ByteBuffer, B> type) {
    long number = offset / BYTES;
    int set = (System.identityHashCode(memory) + (int) number) & (SETS - 1);
    for (int at = set * WAYS; at < (set + 1) * WAYS; at++) {
      MappedView window = windows[at];
      if (window != null && window.is(memory, number, type)) {
        return (B) window.buffer;
      }
    }
    B made = type.apply(bytes(memory, number * BYTES));
    windows[set * WAYS + (replaced++ & (WAYS - 1))] = new MappedView(memory, number, type, made);
    return made;
  }

  private static ByteBuffer bytes(MemorySegment memory, long begin) {
    long size = Math.min(BYTES + BLOCK_BYTES, memory.byteSize() - begin);
    return memory.asSlice(begin, size).asByteBuffer().order(ByteOrder.nativeOrder());
  }

  /** Returns where the window begins that a place lies in. */
  static long begin(long offset) {
    return offset / BYTES * BYTES;
  }

  /** Keeps nobody's memory reachable any longer for the calling thread; allocates nothing. */
  public static void forgetOfThread() {
    OF_THREAD.remove();
  }
}
