package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.Function;

/**
 * Loops whose sums read elements where they lie, by way of {@link MappedViews}, and only write to
 * an array: a loop that writes to memory as well is not vectorized, since that memory might
 * overlap.
 *
 * @param <A> the array that holds elements of the type
 * @param <B> the buffer that elements are read from
 */
abstract class BufferKernel<A, B extends Buffer> extends ArrayKernel<A> {
  /**
   * Makes the compiler see that an index with a few elements more does not overflow, without which
   * it does not vectorize; every index in a window is smaller.
   */
  static final int INDEX_MASK = (1 << 30) - 1;

  private final Function<ByteBuffer, B> type;
  private Buffer[] windows = new Buffer[2];
  private final long[] begins = new long[2];

  BufferKernel(
      int elementBytes,
      A own,
      A other,
      Function<A, MemorySegment> view,
      Function<ByteBuffer, B> type) {
    super(elementBytes, own, other, view);
    this.type = type;
  }

  @SuppressWarnings("unchecked") // They are made by the type.
  private B window(int place) {
    return (B) windows[place];
  }

  private int index(long offset, int begin) {
    return (int) (offset - begins[begin]) / elementBytes();
  }

  @Override
  final boolean open(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset) {
    MappedViews ofThread = MappedViews.ofThread();
    windows[0] = ofThread.window(left, leftOffset, type);
    windows[1] = ofThread.window(right, rightOffset, type);
    begins[0] = MappedViews.begin(leftOffset);
    begins[1] = MappedViews.begin(rightOffset);
    return true;
  }

  @Override
  final boolean open(MemorySegment[] from, long offset) {
    MappedViews ofThread = MappedViews.ofThread();
    if (windows.length < from.length) {
      windows = new Buffer[from.length];
    }
    for (int rank = 0; rank < from.length; rank++) {
      windows[rank] = ofThread.window(from[rank], offset, type);
    }
    begins[0] = MappedViews.begin(offset);
    return true;
  }

  @Override
  final void sum(
      MemorySegment left, long leftOffset, MemorySegment right, long rightOffset, int count) {
    sum(window(0), index(leftOffset, 0), window(1), index(rightOffset, 1), own(), count);
  }

  @Override
  final void sum(MemorySegment[] from, int[] order, int first, long offset, int count) {
    int at = index(offset, 0);
    sum(window(order[first + 1]), at, window(order[first]), at, own(), count);
    int turn = 2;
    for (; turn + 1 < from.length; turn += 2) {
      sum(window(order[first + turn]), window(order[first + turn + 1]), at, own(), count);
    }
    if (turn < from.length) {
      sum(window(order[first + turn]), at, own(), count);
    }
  }

  /** Sums two runs into an array. */
  abstract void sum(B left, int leftAt, B right, int rightAt, A into, int count);

  /** Sums a run onto what an array has. */
  abstract void sum(B left, int at, A into, int count);

  /** Sums two runs onto what an array has, first the one, then the other. */
  void sum(B first, B second, int at, A into, int count) {
    sum(first, at, into, count);
    sum(second, at, into, count);
  }

  @Override
  final void forget() {
    Arrays.fill(windows, null);
  }
}
