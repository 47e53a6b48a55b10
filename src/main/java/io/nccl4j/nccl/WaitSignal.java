package io.nccl4j.nccl;

import io.nccl4j.internal.util.Arguments;

/**
 * How many signals of one peer {@link NcclCommunicator#waitSignal} waits for. C: {@code
 * ncclWaitSignalDesc_t}.
 *
 * @param peer the rank that signals
 * @param count how many of its signals; 1 or more
 */
public record WaitSignal(int peer, int count) {
  /**
   * Checks what needs no communicator.
   *
   * @throws IllegalArgumentException if the peer is negative or the count is not positive
   */
  public WaitSignal {
    Arguments.atLeast(peer, "peer", 0);
    Arguments.atLeast(count, "count", 1);
  }
}
