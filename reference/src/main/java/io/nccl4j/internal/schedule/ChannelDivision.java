package io.nccl4j.internal.schedule;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import org.jspecify.annotations.NullMarked;

/**
 * The division of an all-reduce's elements among channels. NCCL divides them into cells ({@link
 * Layout#cellBytes}): every channel gets the same number of whole cells, and the last channel the
 * remainder.
 *
 * <p>An instance is reused for successive all-reduces. It is not thread-safe.
 */
@NullMarked
public final class ChannelDivision {
  /** NCCL counts each byte twice: it is sent in the reduce-scatter and in the all-gather. */
  private static final int TRAFFIC_PER_BYTE = 2;

  /** The factor by which NCCL weights a byte of {@link Protocol#LL}. */
  private static final int LL_TRAFFIC_FACTOR = 4;

  private final int maxChannels;
  private final long minTraffic;
  private final int trafficPerByte;
  private final long minChannelBytes;

  private int channels;
  private long count;
  private long firstCount;
  private long middleCount;

  /**
   * Creates a division of no elements.
   *
   * @param layout the layout, which determines the number of channels and the protocol
   * @param ring true for rings, false for trees
   * @param ranks the number of ranks; 1 or more
   */
  public ChannelDivision(Layout layout, boolean ring, int ranks) {
    this.maxChannels = layout.channels();
    this.minTraffic = (long) TRAFFIC_PER_BYTE * layout.cellBytes();
    Protocol protocol = layout.protocol();
    this.trafficPerByte = TRAFFIC_PER_BYTE * (protocol == Protocol.LL ? LL_TRAFFIC_FACTOR : 1);
    this.minChannelBytes =
        ring && protocol == Protocol.LL
            ? (long) blockBytes(protocol) * ranks
            : blockBytes(protocol);
  }

  /** Returns the bytes of one block of threads: a channel has at least as many. */
  private static int blockBytes(Protocol protocol) {
    return switch (protocol) {
      case SIMPLE -> 512 * 64;
      case LL -> 512 * 8;
      case LL128 -> 640 * 8;
    };
  }

  /** Validates the arguments of a schedule. */
  static void check(int ranks, long count, int elementBytes) {
    Arguments.atLeast(ranks, "ranks", 1);
    Arguments.atLeast(count, "count", 0);
    if (elementBytes < 1 || elementBytes > 8 || Integer.bitCount(elementBytes) != 1) {
      throw new IllegalArgumentException(
          "elementBytes is " + elementBytes + "; it must be 1, 2, 4 or 8");
    }
  }

  /**
   * Divides elements among channels; replaces the previous division.
   *
   * @param elements the number of elements; 0 or more
   * @param elementBytes the size of an element in bytes
   */
  public void divide(long elements, int elementBytes) {
    count = elements;
    long bytes = elements * elementBytes;
    long wanted = Math.clamp(bytes / minChannelBytes, 1, maxChannels);
    long cellBytes = minTraffic / trafficPerByte;
    long cells = Math.ceilDiv(bytes, cellBytes);
    long channelTraffic = Math.max(minTraffic, bytes * trafficPerByte) / wanted;
    long perChannel = Math.min(cells, Math.ceilDiv(channelTraffic, minTraffic));
    share(cells, perChannel, cellBytes / elementBytes);
  }

  private void share(long cells, long perChannel, long cellCount) {
    long first = maxChannels == 1 ? cells : perChannel;
    long middle = perChannel;
    channels = first == 0 ? 0 : 1 + (int) Math.ceilDiv(cells - first, middle);
    if (channels > maxChannels) {
      // A few bytes more than a whole number of cells can require one channel too many.
      channels = maxChannels;
      middle = (cells - first) / (maxChannels - 1);
    }
    firstCount = first * cellCount;
    middleCount = middle * cellCount;
  }

  /** {@return the number of channels that have elements} */
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
   * {@return the end of a channel: the index after its last element}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public long end(int channel) {
    return channel == channels - 1 ? count : begin(channel + 1);
  }
}
