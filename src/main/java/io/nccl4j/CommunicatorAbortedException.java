package io.nccl4j;

import io.nccl4j.spi.FailureDetails;
import java.util.Set;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown by a wait that ended because {@link Communicator#abort} was called on its communicator, by
 * this or another thread.
 */
@NullMarked
public class CommunicatorAbortedException extends NcclException {
  private static final long serialVersionUID = 1;

  /** The aborted communicator. */
  private final String communicator;

  /**
   * Creates an exception for a wait that an abort ended.
   *
   * @param function the function that was waiting
   * @param communicator the aborted communicator, as {@link Communicator#toString} returns it
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

  /** {@return the aborted communicator, as {@link Communicator#toString} returns it} */
  public final String communicator() {
    return communicator;
  }
}
