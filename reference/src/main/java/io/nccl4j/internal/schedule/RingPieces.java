package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import org.jspecify.annotations.NullMarked;

/**
 * Random access to each rank's part of an all-reduce around the rings of a layout. A rank's part
 * consists of the elements whose result that rank obtains first. It is divided into pieces of at
 * most a slice, which are accessed by index, and not step by step as with a {@link RingCursor}. A
 * piece is folded in the order of its ring, its owner last.
 *
 * <p>An instance is reused for successive operations. It is not thread-safe.
 */
@NullMarked
public final class RingPieces {
  private final int ranks;
  private final Layout layout;
  private final ChannelDivision division;
  private final Channel[] channels;

  private long dividedElements;
  private int dividedBytes;
  private long maxPieceCount;
  private int perRank;
  private long largest;

  // The channel of the current piece, set with the piece.
  @SuppressWarnings("NullAway.Init")
  private Channel channel;

  private int position;
  private long begin;
  private long count;

  /** The chunks of one channel. */
  private static final class Channel {
    final Ring ring;
    // The ring twice, so that the ranks from any position on are consecutive.
    final int[] order;
    long begin;
    long end;
    long chunkCount;
    long lastChunkCount;
    int fullLoops;
    int piecesPerChunk;
    int pieces;

    Channel(Ring ring) {
      this.ring = ring;
      this.order = new int[2 * ring.size()];
      for (int i = 0; i < order.length; i++) {
        order[i] = ring.rank(i % ring.size());
      }
    }
  }

  /**
   * Creates the pieces of no elements.
   *
   * @param layout the layout
   * @param ranks the number of ranks; 2 or more
   */
  public RingPieces(Layout layout, int ranks) {
    this.ranks = ranks;
    this.layout = layout;
    this.division = new ChannelDivision(layout, true, ranks);
    this.channels = new Channel[layout.channels()];
  }

  /**
   * Divides the elements of an operation.
   *
   * @param elements the number of elements
   * @param elementBytes the size of an element in bytes
   */
  public void divide(long elements, int elementBytes) {
    // Most operations have the same size as the previous one.
    if (elements != dividedElements || elementBytes != dividedBytes) {
      // If the division fails, there is no valid previous one.
      dividedBytes = 0;
      divideChannels(elements, elementBytes);
      dividedElements = elements;
      dividedBytes = elementBytes;
    }
  }

  private void divideChannels(long elements, int elementBytes) {
    long chunk = layout.chunkBytes() / elementBytes;
    maxPieceCount = Math.min(chunk, layout.sliceBytes() / elementBytes);
    perRank = 0;
    largest = 0;
    division.divide(elements, elementBytes);
    for (int i = 0; i < division.channels(); i++) {
      if (channels[i] == null) {
        channels[i] = new Channel(Ring.of(layout, i, ranks));
      }
      divide(channels[i], division.begin(i), division.end(i), chunk, elementBytes);
      perRank += channels[i].pieces;
      long largestChunk = channels[i].fullLoops > 0 ? chunk : channels[i].lastChunkCount;
      largest = Math.max(largest, Math.min(largestChunk, maxPieceCount));
    }
  }

  private void divide(Channel divided, long first, long end, long chunk, int elementBytes) {
    divided.begin = first;
    divided.end = end;
    divided.chunkCount = chunk;
    divided.fullLoops = Math.toIntExact((end - first) / (ranks * chunk));
    divided.piecesPerChunk = pieces(chunk);
    long left = end - first - (long) divided.fullLoops * ranks * chunk;
    long grain = RingCursor.lastLoopGrain(elementBytes);
    divided.lastChunkCount = left == 0 ? 0 : RingCursor.chunkCount(left, ranks, chunk, grain);
    divided.pieces = divided.fullLoops * divided.piecesPerChunk + pieces(divided.lastChunkCount);
  }

  private int pieces(long chunk) {
    return Math.toIntExact(Math.ceilDiv(chunk, maxPieceCount));
  }

  /** {@return the number of pieces of each rank} */
  public int perRank() {
    return perRank;
  }

  /**
   * Moves to a piece.
   *
   * @param rank the owner of the piece
   * @param number the index of the piece, from 0, less than {@link #perRank()}
   */
  public void moveTo(int rank, int number) {
    int left = number;
    int at = 0;
    while (left >= channels[at].pieces) {
      left -= channels[at].pieces;
      at++;
    }
    channel = channels[at];
    position = channel.ring.position(rank);
    int loop = Math.min(left / channel.piecesPerChunk, channel.fullLoops);
    long chunk = loop < channel.fullLoops ? channel.chunkCount : channel.lastChunkCount;
    long inChunk = (left - loop * channel.piecesPerChunk) * maxPieceCount;
    begin = channel.begin + (long) loop * ranks * channel.chunkCount + position * chunk + inChunk;
    count = Math.min(Math.min(maxPieceCount, chunk - inChunk), channel.end - begin);
  }

  /** {@return the first element of the piece} */
  public long begin() {
    return begin;
  }

  /** {@return the number of elements of the piece; 0 or less if the last loop has none for it} */
  public long count() {
    return count;
  }

  /** {@return the number of elements of the largest piece} */
  public long maxCount() {
    return largest;
  }

  /** {@return the ranks in ring order, the whole ring twice; must not be modified} */
  public int[] order() {
    return channel.order;
  }

  /** {@return the index in {@link #order()} at which the fold of the piece begins} */
  public int first() {
    return position + 1;
  }
}
