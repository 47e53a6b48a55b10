package io.nccl4j.nccl;

/**
 * How many signals of one peer {@link NcclCommunicator#waitSignal} waits for. C: {@code
 * ncclWaitSignalDesc_t}.
 *
 * @param peer the rank that signals
 * @param count how many of its signals; 1 or more
 */
public record ExpectedSignals(int peer, int count) {
  /**
   * Checks what needs no communicator.
   *
   * @throws IllegalArgumentException if the peer is negative or the count is not positive
   */
  public ExpectedSignals {
    if (peer < 0) {
      throw new IllegalArgumentException("peer is " + peer + "; it must be 0 or more");
    }
    if (count < 1) {
      throw new IllegalArgumentException("count is " + count + "; it must be 1 or more");
    }
  }
}
