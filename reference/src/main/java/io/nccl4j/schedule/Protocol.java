package io.nccl4j.schedule;

import org.jspecify.annotations.NullMarked;

/**
 * NCCL's protocols: how data and the notification of its arrival are transferred. They differ in
 * the size of a chunk, which determines where in a ring the reduction of an element starts, and in
 * bandwidth and latency.
 */
@NullMarked
public enum Protocol {
  /** Data only, with a separate counter: full bandwidth, high latency. */
  SIMPLE(512, 2 << 20, 4, 1, 1),
  /** Four bytes of data and four bytes of flag alternate: half the bandwidth, lowest latency. */
  LL(16, 32 << 10, 1, 16, 8),
  /** 120 bytes of data and 8 bytes of flag: nearly full bandwidth, low latency, over NVLink. */
  LL128(1920, 576_000, 1, 128, 120);

  private final int grainBytes;
  private final int chunkBytes;
  private final int chunkSteps;
  private final int lineBytes;
  private final int lineDataBytes;

  Protocol(int grainBytes, int chunkBytes, int chunkSteps, int lineBytes, int lineDataBytes) {
    this.grainBytes = grainBytes;
    this.chunkBytes = chunkBytes;
    this.chunkSteps = chunkSteps;
    this.lineBytes = lineBytes;
    this.lineDataBytes = lineDataBytes;
  }

  /** {@return the unit of which a chunk size must be a multiple, in bytes} */
  public int grainBytes() {
    return grainBytes;
  }

  /**
   * {@return the size of a ring's chunk in bytes with NCCL's default buffer size} For a tree's see
   * {@link Layout#treeChunkBytes}.
   */
  public int chunkBytes() {
    return chunkBytes;
  }

  /** Returns the size of a tree's chunk on a channel with an amount of data. */
  int treeChunkBytes(int ringChunkBytes, int ranks, int nodes, long channelBytes) {
    int bytes = ringChunkBytes / chunkSteps;
    if (this == LL128) {
      bytes = treeChunkBytesOfLl128(bytes, ranks, nodes, channelBytes);
    }
    return Math.max(grainBytes, bytes / grainBytes * grainBytes);
  }

  /**
   * Returns the size of a tree's chunk before it is rounded to whole grains: small enough to keep
   * all levels of the tree busy. Each level wants more chunks, and each rank per node fewer.
   */
  private static int treeChunkBytesOfLl128(int largest, int ranks, int nodes, long channelBytes) {
    // Computed with floats, in NCCL's order, so that it rounds as NCCL does.
    float ranksPerNode = ranks / (float) nodes;
    int levels = Integer.SIZE - 1 - Integer.numberOfLeadingZeros(nodes);
    float steps = (float) (1 + levels + 0.1 * ranksPerNode);
    int bytes = halve(largest, 128 << 10, channelBytes, steps * 64 / ranksPerNode);
    return halve(bytes, 32 << 10, channelBytes, steps * 16 / ranksPerNode);
  }

  /** Halves a chunk that is larger than a limit while the channel has fewer chunks than wanted. */
  private static int halve(int chunkBytes, int limit, long channelBytes, float wantedChunks) {
    int bytes = chunkBytes;
    while (bytes > limit && Math.floorDiv(channelBytes, bytes) < wantedChunks) {
      bytes /= 2;
    }
    return bytes;
  }

  /**
   * {@return the number of bytes written for an amount of data, including flags}
   *
   * @param dataBytes the amount of data in bytes
   */
  public long wireBytes(long dataBytes) {
    return Math.ceilDiv(dataBytes, lineDataBytes) * lineBytes;
  }
}
