package io.nccl4j.spi;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.function.Supplier;

/**
 * The driver of a {@link io.nccl4j.Communicator}. Arguments are already validated. It is called by
 * one thread at a time, except {@link #abort}, {@link #asyncError}, {@link #awaited} and {@link
 * #launching}, which any thread may call at any time.
 */
public interface CommunicatorDriver {
  /** The color of a rank that takes part in a split and gets no new communicator. */
  int NO_COLOR = -1;

  /** The operator code of an operation without a reduction. */
  int NO_OPERATOR = -1;

  /** The peer of an operation that has neither a root nor a peer. */
  int NO_PEER = -1;

  /**
   * Connects to the other ranks, within the timeout. May run in any thread, concurrently with the
   * connecting of other communicators.
   */
  void connect();

  /**
   * Returns the unconnected driver of a child, whose {@link #connect} takes part in a split.
   *
   * @param color 0 or more, or {@link #NO_COLOR}
   * @param key orders the new ranks
   */
  CommunicatorDriver split(int color, int key, CommunicatorContext child);

  /** Returns the unconnected driver of a child, whose {@link #connect} takes part in a shrink. */
  CommunicatorDriver shrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorContext child);

  /**
   * Returns the ranks that are lost: those that have left, and those whose processes do not answer.
   * Waits for the answers, at most for a part of the timeout. Empty if the library does not report
   * which ranks are lost.
   */
  Optional<Set<Integer>> lostRanks();

  /** Creates the id that new ranks need to join. */
  UniqueId newGrowId();

  /**
   * Returns the unconnected driver of a child, whose {@link #connect} takes part in a grow.
   *
   * @param id the id that {@link #newGrowId} returned on this rank, or null if another rank created
   *     it
   */
  CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child);

  /**
   * Returns an object that is equal for all ranks of this communicator in this process, and for no
   * other communicator.
   */
  Object communicatorKey();

  /**
   * Throws unless this rank supports the operation on a float8 type.
   *
   * @throws IllegalArgumentException if the device does not support it
   * @throws UnsupportedNcclVersionException if the NCCL version does not support it
   */
  void checkFloat8(Operation operation, DataType type);

  /**
   * Creates an operator with an immediate scalar, which it rounds to the type; returns its code.
   */
  int createOperator(DataType type, double scalar);

  /** Creates an operator that reads its scalar when a reduction runs; returns its code. */
  int createOperator(BufferMemory scalar);

  /**
   * Destroys an operator; has no effect once the connection has ended, since its operators end with
   * it.
   */
  void destroyOperator(int code);

  /**
   * Returns a failure detected since the connection was established, or empty. May also be called
   * after {@link #abort}, and may then be empty.
   */
  Optional<NcclException> asyncError();

  /**
   * Returns what this rank's current operation waits for; empty if that is not known. Asks other
   * processes, for at most a few seconds, and makes no native call that can block.
   *
   * @param operation the oldest collective that the device has not completed; null if it is not
   *     known, or if the oldest operation is a message or part of a graph
   * @param calls returns where it is among this rank's calls, of which there may be more when asked
   *     again
   */
  default Optional<Awaited> awaited(Operation operation, Supplier<CallCount> calls) {
    return Optional.empty();
  }

  /**
   * Returns whether the library may still enqueue work of a launch that nccl4j stopped waiting for.
   * The memory of its operations is then in use even if the streams are idle.
   */
  default boolean launching() {
    return false;
  }

  /**
   * Ends the operations, so that only a shrink, a split or an end of the communicator can follow.
   * Any thread may call it.
   *
   * @return whether they were ended; false if the library cannot do it, or not now
   */
  default boolean revoke() {
    return false;
  }

  /**
   * Ends the connection at once, possibly while {@link #connect} runs. Called at most once, and not
   * after {@link #close}.
   */
  void abort();

  /** Closes the connection in an orderly way; called at most once, and not after {@link #abort}. */
  void close();
}
