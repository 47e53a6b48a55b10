package io.nccl4j.reference;

import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.schedule.Layout;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * The options of a {@link ReferenceBackend}. All ranks of a communicator must have the same
 * options, because the options determine which rank combines which element in which order.
 */
@NullMarked
public final class ReferenceOptions {
  private static final ReferenceOptions DEFAULTS =
      new ReferenceOptions(Algorithm.AUTO, Layout.defaults(), Transport.AUTO);

  private final Algorithm algorithm;
  private final Layout layout;
  private final Transport transport;

  private ReferenceOptions(Algorithm algorithm, Layout layout, Transport transport) {
    Objects.requireNonNull(algorithm, "algorithm");
    Objects.requireNonNull(layout, "layout");
    Objects.requireNonNull(transport, "transport");
    this.algorithm = algorithm;
    this.layout = layout;
    this.transport = transport;
  }

  /**
   * {@return the default options: {@link Algorithm#AUTO}, {@link Layout#defaults()} and {@link
   * Transport#AUTO}}
   */
  public static ReferenceOptions defaults() {
    return DEFAULTS;
  }

  static ReferenceOptions of(RankOptions options) {
    Transport transport = options.sharesMemory() ? Transport.AUTO : Transport.TCP;
    return new ReferenceOptions(Algorithm.of(options.algorithm()), options.layout(), transport);
  }

  RankOptions forRanks() {
    return new RankOptions(algorithm.fixed(), layout, transport == Transport.AUTO, toString());
  }

  /**
   * {@return a copy with another algorithm}
   *
   * @param value the all-reduce algorithm
   */
  public ReferenceOptions withAlgorithm(Algorithm value) {
    return new ReferenceOptions(value, layout, transport);
  }

  /**
   * {@return a copy with another layout}
   *
   * @param value how data is divided, and the order of the ranks in rings and trees
   */
  public ReferenceOptions withLayout(Layout value) {
    return new ReferenceOptions(algorithm, value, transport);
  }

  /**
   * {@return a copy with another transport}
   *
   * @param value how data is transferred between processes
   */
  public ReferenceOptions withTransport(Transport value) {
    return new ReferenceOptions(algorithm, layout, value);
  }

  /** {@return the all-reduce algorithm} */
  public Algorithm algorithm() {
    return algorithm;
  }

  /**
   * {@return how an all-reduce divides its data into channels, chunks and slices, and the order of
   * the ranks in rings and trees} Ring orders apply to all operations that use a ring; those other
   * than the all-reduce use the ring of channel 0.
   */
  public Layout layout() {
    return layout;
  }

  /** {@return how data is transferred between processes; affects speed, never results} */
  public Transport transport() {
    return transport;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof ReferenceOptions that
        && algorithm == that.algorithm
        && layout.equals(that.layout)
        && transport == that.transport;
  }

  @Override
  public int hashCode() {
    return Objects.hash(algorithm, layout, transport);
  }

  @Override
  public String toString() {
    return "ReferenceOptions[algorithm=%s, layout=%s, transport=%s]"
        .formatted(algorithm, layout, transport);
  }
}
