package io.nccl4j.schedule;

import io.nccl4j.internal.util.Arguments;

/**
 * Which elements of an all-reduce go on which channel. NCCL shares them out in cells of some KiB:
 * every channel gets the same number of whole cells, the last one what is left.
 *
 * <p>An instance is used again for one all-reduce after another, by one thread, so that dividing
 * allocates nothing.
 */
public final class ChannelDivision {
  /** What NCCL lets an element count twice for: it is sent in the reduce and in the gather. */
  private static final int TRAFFIC_PER_BYTE = 2;

  private static final int LEAST_TRAFFIC = 32 << 10;

  private final int mostChannels;
  private final Protocol protocol;
  private final long leastChannelBytes;

  private int channels;
  private long count;
  private long firstCount;
  private long middleCount;

  /**
   * Makes a division, of nothing yet.
   *
   * @param layout says how many channels there are, and which protocol
   * @param ring whether this is for a ring; otherwise it is for trees
   * @param ranks the number of ranks; 1 or more
   */
  public ChannelDivision(Layout layout, boolean ring, int ranks) {
    this.mostChannels = layout.channels();
    this.protocol = layout.protocol();
    this.leastChannelBytes = protocol.leastChannelBytes(ring, ranks);
  }

  /** Checks what a schedule is for. */
  static void check(int ranks, long count, int elementBytes) {
    Arguments.atLeast(ranks, "ranks", 1);
    Arguments.atLeast(count, "count", 0);
    if (elementBytes < 1 || elementBytes > 8 || Integer.bitCount(elementBytes) != 1) {
      throw new IllegalArgumentException(
          "elementBytes is " + elementBytes + "; it must be 1, 2, 4 or 8");
    }
  }

  /**
   * Divides elements among channels, in place of those divided before.
   *
   * @param elements how many elements; 0 or more
   * @param elementBytes the size of one, in bytes
   */
  public void divide(long elements, int elementBytes) {
    count = elements;
    long bytes = elements * elementBytes;
    long wanted = Math.clamp(bytes / leastChannelBytes, 1, mostChannels);
    int trafficPerByte = TRAFFIC_PER_BYTE * protocol.trafficFactor();
    long cellBytes = LEAST_TRAFFIC / trafficPerByte;
    long cells = Math.ceilDiv(bytes, cellBytes);
    long channelTraffic = Math.max(LEAST_TRAFFIC, bytes * trafficPerByte) / wanted;
    // NCCL rounds the traffic of a channel up to 16 bytes before it counts cells.
    channelTraffic = Math.ceilDiv(channelTraffic, 16) * 16;
    long perChannel = Math.min(cells, Math.ceilDiv(channelTraffic, LEAST_TRAFFIC));
    share(cells, perChannel, cellBytes / elementBytes);
  }

  private void share(long cells, long perChannel, long cellCount) {
    long first = mostChannels == 1 ? cells : perChannel;
    long middle = perChannel;
    channels = first == 0 ? 0 : 1 + (int) Math.ceilDiv(cells - first, middle);
    if (channels > mostChannels) {
      // A few bytes over a whole number of cells can ask for one channel too many.
      channels = mostChannels;
      middle = (cells - first) / (mostChannels - 1);
    }
    firstCount = first * cellCount;
    middleCount = middle * cellCount;
  }

  /** {@return how many channels have elements} */
  public int channels() {
    return channels;
  }

  /**
   * {@return the first element of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public long begin(int channel) {
    return channel == 0 ? 0 : firstCount + (channel - 1) * middleCount;
  }

  /**
   * {@return the element after a channel's last one}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public long end(int channel) {
    return channel == channels - 1 ? count : begin(channel + 1);
  }
}
