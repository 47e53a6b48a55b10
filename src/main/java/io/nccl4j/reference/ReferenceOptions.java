package io.nccl4j.reference;

import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.util.Objects;

/**
 * What a {@link ReferenceBackend} does its work with. All ranks of a communicator must have the
 * same options, since they decide which rank combines which element in which order.
 *
 * @param algorithm how an all-reduce is carried out
 * @param layout into which channels, chunks and slices an all-reduce divides its data, and how
 *     rings and trees lie over the ranks. Rings other than in rank order are for all operations
 *     that go around one; those but the all-reduce go around that of channel 0
 * @param links how data gets from one process to another; it changes speed, never results
 */
public record ReferenceOptions(Algorithm algorithm, Layout layout, Transport transport) {
  private static final ReferenceOptions DEFAULTS =
      new ReferenceOptions(Algorithm.AUTO, Layout.defaults(), Transport.AUTO);

  /** Checks the values. */
  public ReferenceOptions {
    Objects.requireNonNull(algorithm, "algorithm");
    Objects.requireNonNull(layout, "layout");
    Objects.requireNonNull(transport, "links");
  }

  /**
   * {@return the options that suit most programs: {@link Algorithm#AUTO}, {@link Layout#defaults()}
   * and {@link Transport#AUTO}}
   */
  public static ReferenceOptions defaults() {
    return DEFAULTS;
  }

  static ReferenceOptions of(RankOptions options) {
    Transport links = options.sharesMemory() ? Transport.AUTO : Transport.TCP;
    return new ReferenceOptions(Algorithm.of(options.algorithm()), options.layout(), links);
  }

  RankOptions forRanks() {
    return new RankOptions(algorithm.fixed(), layout, transport == Transport.AUTO, toString());
  }

  /** {@return into how many contiguous parts an all-reduce divides its data at most} */
  public int channels() {
    return layout.channels();
  }

  /** {@return the size of a ring's chunk in bytes} */
  public int chunkBytes() {
    return layout.chunkBytes();
  }

  /** {@return how much of a chunk is handed over at a time, in bytes} */
  public int sliceBytes() {
    return layout.sliceBytes();
  }

  /**
   * {@return a copy with another algorithm}
   *
   * @param value how an all-reduce is carried out
   */
  public ReferenceOptions withAlgorithm(Algorithm value) {
    return new ReferenceOptions(value, layout, transport);
  }

  /**
   * {@return a copy with another layout}
   *
   * @param value how data is divided and rings and trees lie
   */
  public ReferenceOptions withLayout(Layout value) {
    return new ReferenceOptions(algorithm, value, transport);
  }

  /**
   * {@return a copy with other links between processes}
   *
   * @param value how data gets from one process to another
   */
  public ReferenceOptions withTransport(Transport value) {
    return new ReferenceOptions(algorithm, layout, value);
  }

  /**
   * {@return a copy with another number of channels}
   *
   * @param value how many channels, from 1 to 64
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withChannels(int value) {
    return withLayout(layout.withChannels(value));
  }

  /**
   * {@return a copy with another protocol of NCCL's, whose chunks it then has}
   *
   * @param value the protocol
   */
  public ReferenceOptions withProtocol(Protocol value) {
    return withLayout(layout.withProtocol(value));
  }

  /**
   * {@return a copy with another chunk size}
   *
   * @param value the size of a ring's chunk in bytes, a positive multiple of the protocol's grain
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withChunkBytes(int value) {
    return withLayout(layout.withChunkBytes(value));
  }

  /**
   * {@return a copy with another slice size}
   *
   * @param value the size of a slice in bytes, a positive multiple of 512
   * @throws IllegalArgumentException if the value is out of its range
   */
  public ReferenceOptions withSliceBytes(int value) {
    return withLayout(layout.withSliceBytes(value));
  }
}
