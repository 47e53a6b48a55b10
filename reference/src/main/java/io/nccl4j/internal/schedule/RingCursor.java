package io.nccl4j.internal.schedule;

import org.jspecify.annotations.NullMarked;

/**
 * Iterates over one rank's steps on one channel of a ring.
 *
 * <p>With n ranks, step s of the rank at position p handles chunk {@code p - 1 - s} (modulo n).
 * Steps 0 to n - 1 reduce: chunk c starts at position c + 1, each further position folds its own
 * data onto the received data, and position c obtains the result. Steps n - 1 to 2n - 2 forward the
 * results. An all-reduce performs all steps, a reduce-scatter the first n, an all-gather the last
 * n.
 *
 * <p>Each slice completes all its steps before the next one starts, and each loop completes before
 * the next one starts. All cursors of a channel have the same number of steps, even if a chunk has
 * no elements; such a step has a {@link #count()} of 0 or less and receives and sends nothing.
 *
 * <p>A cursor is reused for successive operations. It is not thread-safe.
 */
@NullMarked
public final class RingCursor {
  /** The unit of the chunk size of a last, smaller loop. */
  private static final int LAST_LOOP_GRAIN_BYTES = 16;

  private final int position;
  private final int ranks;

  private int firstStep;
  private int lastStep;
  private long end;
  private long fullChunkCount;
  private long sliceCount;
  private long grain;

  private int loop;
  private long loopBegin;
  private long chunkCount;
  private long sliceBegin;
  private int step;

  /**
   * Creates a cursor that is at its end.
   *
   * @param position the position of the rank in the ring
   * @param ranks the number of ranks; 2 or more
   */
  public RingCursor(int position, int ranks) {
    this.position = position;
    this.ranks = ranks;
  }

  /**
   * Starts an all-reduce.
   *
   * @param begin the channel's first element
   * @param endOfChannel the index after the channel's last element
   * @param chunk the number of elements of a chunk in a full loop
   * @param slice the maximum number of elements of a slice
   * @param elementBytes the size of an element in bytes
   */
  public void allReduce(long begin, long endOfChannel, long chunk, long slice, int elementBytes) {
    start(0, 2 * ranks - 2, chunk, slice);
    end = endOfChannel;
    grain = lastLoopGrain(elementBytes);
    startLoop(begin);
  }

  /**
   * Starts a reduce-scatter of one chunk for each position.
   *
   * @param chunk the number of elements of each chunk
   * @param slice the maximum number of elements of a slice
   */
  public void reduceScatter(long chunk, long slice) {
    start(0, ranks - 1, chunk, slice);
    end = ranks * chunk;
    startLoop(0);
  }

  /**
   * Starts an all-gather of one chunk from each position.
   *
   * @param chunk the number of elements of each chunk
   * @param slice the maximum number of elements of a slice
   */
  public void allGather(long chunk, long slice) {
    start(ranks - 1, 2 * ranks - 2, chunk, slice);
    end = ranks * chunk;
    startLoop(0);
  }

  private void start(int first, int last, long chunk, long slice) {
    firstStep = first;
    lastStep = last;
    fullChunkCount = chunk;
    sliceCount = slice;
    loop = -1;
  }

  private void startLoop(long begin) {
    loop++;
    loopBegin = begin;
    sliceBegin = 0;
    step = firstStep;
    chunkCount = chunkCount(end - begin, ranks, fullChunkCount, grain);
  }

  /** Returns the size of a chunk: the full size, or in a last loop an equal share of the rest. */
  static long chunkCount(long left, int ranks, long fullChunkCount, long grain) {
    return left <= 0 || left >= ranks * fullChunkCount
        ? fullChunkCount
        : Math.ceilDiv(Math.ceilDiv(left, (long) ranks), grain) * grain;
  }

  /** Returns the unit of the chunk size of a last loop, in elements. */
  static long lastLoopGrain(int elementBytes) {
    return LAST_LOOP_GRAIN_BYTES / elementBytes;
  }

  /** {@return whether all steps are done} */
  public boolean done() {
    return loopBegin >= end;
  }

  /** Moves to the next step of this slice, or to the first step of the next slice or loop. */
  public void advance() {
    if (step < lastStep) {
      step++;
      return;
    }
    step = firstStep;
    sliceBegin += sliceCount;
    if (sliceBegin >= chunkCount) {
      startLoop(loopBegin + ranks * chunkCount);
    }
  }

  /** {@return the loop, from 0} */
  public int loop() {
    return loop;
  }

  /** {@return the slice of the chunk, from 0} */
  public int slice() {
    return (int) (sliceBegin / sliceCount);
  }

  /** {@return the step, from 0 to twice the number of ranks less 2} */
  public int step() {
    return step;
  }

  /** {@return the chunk that this step handles, from 0, less than the number of ranks} */
  public int chunk() {
    int chunk = position - 1 - step;
    while (chunk < 0) {
      chunk += ranks;
    }
    return chunk;
  }

  /** {@return the offset of the slice in its chunk, in elements} */
  public long sliceBegin() {
    return sliceBegin;
  }

  /** {@return the first element of the slice} */
  public long element() {
    return loopBegin + chunk() * chunkCount + sliceBegin;
  }

  /** {@return the number of elements of the slice; 0 or less if it has none} */
  public long count() {
    long chunkBegin = loopBegin + chunk() * chunkCount;
    long chunkEnd = Math.min(end, chunkBegin + chunkCount);
    return Math.min(sliceCount, chunkEnd - chunkBegin - sliceBegin);
  }

  /** {@return whether the rank receives in this step} */
  public boolean receives() {
    return step != firstStep;
  }

  /** {@return whether the rank sends in this step} */
  public boolean sends() {
    return step != lastStep;
  }

  /** {@return whether the rank folds its own data onto the received data in this step} */
  public boolean reduces() {
    return step != firstStep && step < ranks;
  }

  /** {@return whether a fold in this step yields the result} */
  public boolean completes() {
    return step == ranks - 1;
  }

  /** {@return the action of the rank in this step of an all-reduce} */
  public Action action() {
    if (!receives()) {
      return Action.SEND;
    }
    if (reduces()) {
      return completes() ? Action.RECV_REDUCE_COPY_SEND : Action.RECV_REDUCE_SEND;
    }
    return sends() ? Action.RECV_COPY_SEND : Action.RECV;
  }
}
