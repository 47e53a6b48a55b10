package io.nccl4j.schedule;

/**
 * NCCL's protocols: how data and the word that it has come travel. They differ in the size of a
 * chunk, which decides where in a ring an element starts, and in what they cost.
 */
public enum Protocol {
  /** Data alone, with a counter beside it: full bandwidth, high latency. */
  SIMPLE(512, 2 << 20, 4, 512 * 64, 1, 1, 1),
  /** Four bytes of data and four of flag in turn: half the bandwidth, lowest latency. */
  LL(16, 32 << 10, 1, 512 * 8, 4, 16, 8),
  /** 120 bytes of data and 8 of flag: nearly full bandwidth, low latency, over NVLink. */
  LL128(1920, 576_000, 1, 640 * 8, 1, 128, 120);

  private final int grainBytes;
  private final int chunkBytes;
  private final int chunkSteps;
  private final int bytesPerBlock;
  private final int trafficFactor;
  private final int lineBytes;
  private final int lineDataBytes;

  Protocol(
      int grainBytes,
      int chunkBytes,
      int chunkSteps,
      int bytesPerBlock,
      int trafficFactor,
      int lineBytes,
      int lineDataBytes) {
    this.grainBytes = grainBytes;
    this.chunkBytes = chunkBytes;
    this.chunkSteps = chunkSteps;
    this.bytesPerBlock = bytesPerBlock;
    this.trafficFactor = trafficFactor;
    this.lineBytes = lineBytes;
    this.lineDataBytes = lineDataBytes;
  }

  /** {@return what the size of a chunk is a multiple of, in bytes} */
  public int grainBytes() {
    return grainBytes;
  }

  /** {@return the size of a ring's chunk in bytes, unless buffers of another size are asked for} */
  public int chunkBytes() {
    return chunkBytes;
  }

  /**
   * {@return the size of a tree's chunk in bytes} It decides when something is sent, never in which
   * order it is folded; for little data NCCL makes that of {@link #LL128} smaller still.
   *
   * @param ringChunkBytes the size of a ring's chunk in bytes
   */
  public int treeChunkBytes(int ringChunkBytes) {
    return Math.max(grainBytes, ringChunkBytes / chunkSteps / grainBytes * grainBytes);
  }

  /**
   * {@return how much is written for so much data, flags included, in bytes}
   *
   * @param dataBytes the data in bytes
   */
  public long wireBytes(long dataBytes) {
    return Math.ceilDiv(dataBytes, lineDataBytes) * lineBytes;
  }

  /** Returns how many bytes NCCL wants for each channel before it uses one more. */
  long leastChannelBytes(boolean ring, int ranks) {
    return ring && this == LL ? (long) bytesPerBlock * ranks : bytesPerBlock;
  }

  /** Returns how much more than other protocols' NCCL counts a byte of this one. */
  int trafficFactor() {
    return trafficFactor;
  }
}
