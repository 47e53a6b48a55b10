package io.nccl4j.schedule;

/**
 * What each rank has the result of first when all ranks all-reduce around the rings of a layout:
 * its part, cut into pieces of at most a slice, which are reached by number and not step by step as
 * by a {@link RingCursor}. A piece is folded from the ranks in the order of its ring, its owner
 * last.
 *
 * <p>It is used again for one operation after another, by one thread.
 */
public final class RingPieces {
  private final int ranks;
  private final Layout layout;
  private final ChannelDivision division;
  private final Channel[] channels;

  private long dividedElements;
  private int dividedBytes;
  private long mostPieceCount;
  private int perRank;
  private long largest;

  private Channel channel;
  private int position;
  private long begin;
  private long count;

  /** The chunks of one channel. */
  private static final class Channel {
    final Ring ring;
    // Twice around, so that a turn that begins anywhere has all ranks in a row.
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
   * Makes the pieces of no elements.
   *
   * @param layout what all ranks agree on
   * @param ranks the number of ranks; 2 or more
   */
  public RingPieces(Layout layout, int ranks) {
    this.ranks = ranks;
    this.layout = layout;
    this.division = new ChannelDivision(layout, true, ranks);
    this.channels = new Channel[layout.channels()];
  }

  /**
   * Cuts the elements of an operation.
   *
   * @param elements how many there are
   * @param elementBytes the size of an element in bytes
   */
  public void divide(long elements, int elementBytes) {
    // Most operations are as large as the one before.
    if (elements != dividedElements || elementBytes != dividedBytes) {
      // A size that cannot be cut leaves nothing to go back to.
      dividedBytes = 0;
      cut(elements, elementBytes);
      dividedElements = elements;
      dividedBytes = elementBytes;
    }
  }

  private void cut(long elements, int elementBytes) {
    long chunk = layout.chunkBytes() / elementBytes;
    mostPieceCount = Math.min(chunk, layout.sliceBytes() / elementBytes);
    perRank = 0;
    largest = 0;
    division.divide(elements, elementBytes);
    for (int i = 0; i < division.channels(); i++) {
      if (channels[i] == null) {
        channels[i] = new Channel(layout.ring(i, ranks));
      }
      cut(channels[i], division.begin(i), division.end(i), chunk, elementBytes);
      perRank += channels[i].pieces;
      long most = channels[i].fullLoops > 0 ? chunk : channels[i].lastChunkCount;
      largest = Math.max(largest, Math.min(most, mostPieceCount));
    }
  }

  private void cut(Channel cut, long first, long end, long chunk, int elementBytes) {
    cut.begin = first;
    cut.end = end;
    cut.chunkCount = chunk;
    cut.fullLoops = Math.toIntExact((end - first) / (ranks * chunk));
    cut.piecesPerChunk = pieces(chunk);
    long left = end - first - (long) cut.fullLoops * ranks * chunk;
    long grain = RingCursor.lastLoopGrain(elementBytes);
    cut.lastChunkCount = left == 0 ? 0 : RingCursor.chunkCount(left, ranks, chunk, grain);
    cut.pieces = cut.fullLoops * cut.piecesPerChunk + pieces(cut.lastChunkCount);
  }

  private int pieces(long chunk) {
    return Math.toIntExact(Math.ceilDiv(chunk, mostPieceCount));
  }

  /** {@return how many pieces each rank has} */
  public int perRank() {
    return perRank;
  }

  /**
   * Goes to a piece.
   *
   * @param rank the rank that has it
   * @param number which of that rank's pieces, from 0, less than {@link #perRank()}
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
    long inChunk = (left - loop * channel.piecesPerChunk) * mostPieceCount;
    begin = channel.begin + (long) loop * ranks * channel.chunkCount + position * chunk + inChunk;
    count = Math.min(Math.min(mostPieceCount, chunk - inChunk), channel.end - begin);
  }

  /** {@return the first element of the piece} */
  public long begin() {
    return begin;
  }

  /** {@return how many elements the piece has; 0 or less where its last loop has none for it} */
  public long count() {
    return count;
  }

  /** {@return how many elements the largest piece has} */
  public long mostCount() {
    return largest;
  }

  /** {@return the ranks along the ring, all of them twice; to be read only} */
  public int[] order() {
    return channel.order;
  }

  /** {@return where in {@link #order()} the fold of the piece begins; it takes every rank once} */
  public int first() {
    return position + 1;
  }
}
