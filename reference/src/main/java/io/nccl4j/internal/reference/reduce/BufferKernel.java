package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.Function;

/**
 * Kernel whose sums read elements in place, through {@link MappedViews}, and write only to an
 * array: a loop that also writes to memory is not vectorized, since the memory might overlap.
 *
 * @param <A> the type of the array of elements
 * @param <B> the type of the buffer that elements are read from
 */
abstract class BufferKernel<A, B extends Buffer> extends ArrayKernel<A> {
  /**
   * Proves to the compiler that an index plus a few elements does not overflow, without which it
   * does not vectorize; every index in a view is smaller.
   */
  static final int INDEX_MASK = (1 << 30) - 1;

  private final Function<ByteBuffer, B> type;
  private Buffer[] buffers = new Buffer[2];
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

  @SuppressWarnings("unchecked") // The type has created them.
  private B buffer(int index) {
    return (B) buffers[index];
  }

  private int index(long offset, int begin) {
    return (int) (offset - begins[begin]) / elementBytes();
  }

  @Override
  final boolean open(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset) {
    MappedViews views = MappedViews.ofThread();
    buffers[0] = views.view(left, leftOffset, type);
    buffers[1] = views.view(right, rightOffset, type);
    begins[0] = MappedViews.begin(leftOffset);
    begins[1] = MappedViews.begin(rightOffset);
    return true;
  }

  @Override
  final boolean open(MemorySegment[] from, long offset) {
    MappedViews views = MappedViews.ofThread();
    if (buffers.length < from.length) {
      buffers = new Buffer[from.length];
    }
    for (int rank = 0; rank < from.length; rank++) {
      buffers[rank] = views.view(from[rank], offset, type);
    }
    begins[0] = MappedViews.begin(offset);
    return true;
  }

  @Override
  final void sum(
      MemorySegment left, long leftOffset, MemorySegment right, long rightOffset, int count) {
    sum(buffer(0), index(leftOffset, 0), buffer(1), index(rightOffset, 1), own(), count);
  }

  @Override
  final void sum(MemorySegment[] from, int[] order, int first, long offset, int count) {
    int at = index(offset, 0);
    sum(buffer(order[first + 1]), at, buffer(order[first]), at, own(), count);
    int turn = 2;
    for (; turn + 1 < from.length; turn += 2) {
      sum(buffer(order[first + turn]), buffer(order[first + turn + 1]), at, own(), count);
    }
    if (turn < from.length) {
      sum(buffer(order[first + turn]), at, own(), count);
    }
  }

  /** Sums two ranges into an array. */
  abstract void sum(B left, int leftAt, B right, int rightAt, A into, int count);

  /** Adds a range to an array. */
  abstract void sum(B left, int at, A into, int count);

  /** Adds two ranges to an array, first the one, then the other. */
  void sum(B first, B second, int at, A into, int count) {
    sum(first, at, into, count);
    sum(second, at, into, count);
  }

  @Override
  final void forget() {
    Arrays.fill(buffers, null);
  }
}
