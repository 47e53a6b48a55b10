package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.NullMarked;

/** The schedule of an all-reduce with one ring per channel: reduce-scatter, then all-gather. */
@NullMarked
public final class RingSchedule implements Schedule {
  private final int ranks;
  private final long count;
  private final int elementBytes;
  private final long chunkCount;
  private final long sliceCount;
  private final ChannelDivision division;
  private final Ring[] rings;

  /**
   * Creates the schedule of one all-reduce.
   *
   * @param layout the layout
   * @param ranks the number of ranks; 1 or more
   * @param count the number of elements; 0 or more
   * @param elementBytes the size of an element in bytes: 1, 2, 4 or 8
   * @throws IllegalArgumentException if a number is out of range
   */
  public RingSchedule(Layout layout, int ranks, long count, int elementBytes) {
    ChannelDivision.check(ranks, count, elementBytes);
    this.ranks = ranks;
    this.count = count;
    this.elementBytes = elementBytes;
    this.chunkCount = layout.chunkBytes() / elementBytes;
    this.sliceCount = Math.min(chunkCount, layout.sliceBytes() / elementBytes);
    this.division = new ChannelDivision(layout, true, ranks);
    this.division.divide(count, elementBytes);
    this.rings = new Ring[division.channels()];
    for (int channel = 0; channel < rings.length; channel++) {
      rings[channel] = Ring.of(layout, channel, ranks);
    }
  }

  @Override
  public int ranks() {
    return ranks;
  }

  @Override
  public long count() {
    return count;
  }

  @Override
  public int elementBytes() {
    return elementBytes;
  }

  @Override
  public int channels() {
    return rings.length;
  }

  @Override
  public long begin(int channel) {
    return division.begin(channel);
  }

  @Override
  public long end(int channel) {
    return division.end(channel);
  }

  /**
   * {@return the ring of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public Ring ring(int channel) {
    return rings[channel];
  }

  /** {@return the number of elements of a chunk in a full loop} */
  public long chunkCount() {
    return chunkCount;
  }

  @Override
  public int hops(int channel) {
    return 2 * (ranks - 1);
  }

  @Override
  public void walk(Consumer<Step> visitor) {
    for (int channel = 0; ranks > 1 && channel < channels(); channel++) {
      RingCursor[] cursors = new RingCursor[ranks];
      for (int position = 0; position < ranks; position++) {
        cursors[position] = new RingCursor(position, ranks);
        cursors[position].allReduce(
            begin(channel), end(channel), chunkCount, sliceCount, elementBytes);
      }
      while (!cursors[0].done()) {
        visit(channel, cursors, visitor);
      }
    }
  }

  /** Visits one step of all ranks, and advances all cursors. */
  private void visit(int channel, RingCursor[] cursors, Consumer<Step> visitor) {
    for (int position = 0; position < ranks; position++) {
      if (cursors[position].count() > 0) {
        visitor.accept(step(channel, rings[channel].rank(position), cursors[position]));
      }
      cursors[position].advance();
    }
  }

  private Step step(int channel, int rank, RingCursor cursor) {
    Ring ring = rings[channel];
    return new Step(
        channel,
        cursor.loop(),
        cursor.slice(),
        cursor.step(),
        rank,
        cursor.action(),
        cursor.chunk(),
        cursor.element(),
        cursor.element() + cursor.count(),
        cursor.receives() ? List.of(ring.previous(rank)) : List.of(),
        cursor.sends() ? List.of(ring.next(rank)) : List.of());
  }

  /**
   * {@inheritDoc}
   *
   * <p>In each loop a rank sends every chunk twice, except that it sends its own chunk and the one
   * after it once.
   */
  @Override
  public long elementsSent(int channel, int rank) {
    return sent(channel, rank, 1);
  }

  @Override
  public long slicesSent(int channel, int rank) {
    return sent(channel, rank, sliceCount);
  }

  @Override
  public long largestSlice(int channel) {
    long elements = end(channel) - begin(channel);
    long firstChunk =
        RingCursor.chunkCount(elements, ranks, chunkCount, RingCursor.lastLoopGrain(elementBytes));
    return Math.min(elements, Math.min(firstChunk, sliceCount));
  }

  @Override
  public long elementsBetween(int channel, int from, int to) {
    return ranks > 1 && rings[channel].next(from) == to ? elementsSent(channel, from) : 0;
  }

  /** Returns how many units of elements a rank sends; the last unit of a chunk may be smaller. */
  private long sent(int channel, int rank, long unit) {
    if (ranks == 1) {
      return 0;
    }
    long elements = end(channel) - begin(channel);
    long wholeLoops = elements / (ranks * chunkCount);
    long left = elements - wholeLoops * ranks * chunkCount;
    long inWholeLoops = wholeLoops * hops(channel) * Math.ceilDiv(chunkCount, unit);
    long lastChunk =
        RingCursor.chunkCount(left, ranks, chunkCount, RingCursor.lastLoopGrain(elementBytes));
    long inLastLoop =
        left / lastChunk * Math.ceilDiv(lastChunk, unit) + Math.ceilDiv(left % lastChunk, unit);
    int position = rings[channel].position(rank);
    return inWholeLoops
        + 2 * inLastLoop
        - Math.ceilDiv(chunkSize(left, lastChunk, position), unit)
        - Math.ceilDiv(chunkSize(left, lastChunk, (position + 1) % ranks), unit);
  }

  private static long chunkSize(long left, long chunk, int index) {
    return Math.clamp(left - index * chunk, 0, chunk);
  }
}
