package io.nccl4j.nccl;

import io.nccl4j.internal.util.Arguments;
import org.jspecify.annotations.NullMarked;

/**
 * The number of signals from one peer that {@link NcclCommunicator#waitSignal} waits for. C: {@code
 * ncclWaitSignalDesc_t}.
 *
 * @param peer the rank that signals
 * @param count the number of signals; 1 or more
 */
@NullMarked
public record WaitSignal(int peer, int count) {
  /**
   * Checks the values. Whether the communicator has the rank is checked later.
   *
   * @throws IllegalArgumentException if the peer is negative or the count is not positive
   */
  public WaitSignal {
    Arguments.atLeast(peer, "peer", 0);
    Arguments.atLeast(count, "count", 1);
  }
}
