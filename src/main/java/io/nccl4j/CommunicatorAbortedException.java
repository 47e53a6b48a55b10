package io.nccl4j;

import java.util.Set;

/**
 * A wait ended because {@link Communicator#abort} was called on its communicator, by this thread or
 * another.
 */
public class CommunicatorAbortedException extends NcclException {
  private static final long serialVersionUID = 1;

  /** The communicator that was aborted. */
  private final String communicator;

  /**
   * Describes one wait that an abort ended.
   *
   * @param function the function that was waiting
   * @param communicator the communicator that was aborted, as {@link Communicator#toString} gives
   *     it
   */
  public CommunicatorAbortedException(String function, String communicator) {
    super(
        function,
        NcclResult.INVALID_USAGE.code(),
        communicator + " was aborted",
        "",
        new FailureDetails(communicator, null, 0, Set.of(), Set.of()));
    this.communicator = communicator;
  }

  /** {@return the communicator that was aborted, as {@link Communicator#toString} gives it} */
  public final String communicator() {
    return communicator;
  }
}
