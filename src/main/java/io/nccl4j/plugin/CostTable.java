package io.nccl4j.plugin;

import io.nccl4j.Operation;
import io.nccl4j.internal.util.Arguments;
import java.util.Arrays;
import org.jspecify.annotations.NullMarked;

/**
 * What NCCL expects one collective to take with each algorithm and protocol. NCCL uses the pair
 * with the lowest cost. Not thread-safe.
 */
@NullMarked
public final class CostTable {
  private final TunedCommunicator communicator;
  private final Operation operation;
  private final long bytes;
  private final int grouped;
  private final boolean registered;
  private final float[] costs;
  private final int protocols;
  private int channels;

  /** A communicator that is tuned. */
  record TunedCommunicator(long number, long ranks, long nodes) {}

  CostTable(
      TunedCommunicator communicator,
      Operation operation,
      long bytes,
      int grouped,
      boolean registered,
      float[] costs,
      int protocols) {
    this.communicator = communicator;
    this.operation = operation;
    this.bytes = bytes;
    this.grouped = grouped;
    this.registered = registered;
    this.costs = costs;
    this.protocols = protocols;
  }

  /** {@return NCCL's number of the communicator, as in {@link ProfilerEvent}} */
  public long communicator() {
    return communicator.number();
  }

  /** {@return the number of ranks} */
  public int ranks() {
    return (int) communicator.ranks();
  }

  /** {@return the number of hosts} */
  public int nodes() {
    return (int) communicator.nodes();
  }

  /** {@return the collective} */
  public Operation operation() {
    return operation;
  }

  /** {@return the bytes of the larger of a rank's input and output} */
  public long bytes() {
    return bytes;
  }

  /** {@return how many collectives NCCL launches together} */
  public int grouped() {
    return grouped;
  }

  /** {@return whether the buffers are registered with NCCL} */
  public boolean registered() {
    return registered;
  }

  /**
   * {@return whether NCCL can use an algorithm with a protocol here}
   *
   * @param algorithm the algorithm
   * @param protocol the protocol
   */
  public boolean usable(NcclAlgorithm algorithm, NcclProtocol protocol) {
    int at = index(algorithm, protocol);
    return at >= 0 && costs[at] >= 0;
  }

  /**
   * {@return the cost in microseconds}
   *
   * @param algorithm the algorithm
   * @param protocol the protocol
   * @throws IllegalArgumentException if NCCL cannot use the pair here
   */
  public float microseconds(NcclAlgorithm algorithm, NcclProtocol protocol) {
    return costs[usableIndex(algorithm, protocol)];
  }

  /**
   * Changes a cost.
   *
   * @param algorithm the algorithm
   * @param protocol the protocol
   * @param microseconds not negative
   * @throws IllegalArgumentException if NCCL cannot use the pair here
   */
  public void set(NcclAlgorithm algorithm, NcclProtocol protocol, float microseconds) {
    if (!(microseconds >= 0)) {
      throw new IllegalArgumentException(
          "microseconds is " + microseconds + "; it must be 0 or more");
    }
    costs[usableIndex(algorithm, protocol)] = microseconds;
  }

  /**
   * Makes NCCL use an algorithm with a protocol: its cost becomes 0, and 0 elsewhere the least
   * number above it.
   *
   * @param algorithm the algorithm
   * @param protocol the protocol
   * @throws IllegalArgumentException if NCCL cannot use the pair here
   */
  public void select(NcclAlgorithm algorithm, NcclProtocol protocol) {
    int selected = usableIndex(algorithm, protocol);
    for (int i = 0; i < costs.length; i++) {
      if (costs[i] == 0) {
        costs[i] = Float.MIN_VALUE;
      }
    }
    costs[selected] = 0;
  }

  /**
   * Sets the number of channels, and thus thread blocks, that NCCL uses at most.
   *
   * @param channels 1 or more; NCCL ignores more than it has
   */
  public void channels(int channels) {
    this.channels = Arguments.atLeast(channels, "channels", 1);
  }

  private int index(NcclAlgorithm algorithm, NcclProtocol protocol) {
    int at = algorithm.code() * protocols + protocol.code();
    return protocol.code() < protocols && at < costs.length ? at : -1;
  }

  private int usableIndex(NcclAlgorithm algorithm, NcclProtocol protocol) {
    if (!usable(algorithm, protocol)) {
      throw new IllegalArgumentException(
          "NCCL cannot use " + algorithm + " with " + protocol + " for this " + operation.method());
    }
    return index(algorithm, protocol);
  }

  /** The costs, by algorithm and protocol. */
  float[] costs() {
    return costs;
  }

  /** The number of channels; 0 if it is not set. */
  int chosenChannels() {
    return channels;
  }

  @Override
  public String toString() {
    return operation.method() + " of " + bytes + " bytes: " + Arrays.toString(costs);
  }
}
