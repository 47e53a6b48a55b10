package io.nccl4j.spi;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import java.util.Optional;
import java.util.SortedSet;

/**
 * A backend's part of one rank's {@link io.nccl4j.Communicator}. All arguments were checked before.
 * One thread at a time calls it, but for {@link #abort}, {@link #asyncError} and {@link
 * #launching}, which any thread calls at any time.
 */
public interface CommunicatorDriver {
  /** The color of a rank that takes part in a split and gets no new communicator. */
  int NO_COLOR = -1;

  /** The code of no operator. */
  int NO_OPERATOR = -1;

  /**
   * Makes the connection, within the timeout. It may run in any thread, at the same time as other
   * communicators' connecting.
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

  /** Makes the id that new ranks need to join. */
  UniqueId newGrowId();

  /**
   * Returns the unconnected driver of a child, whose {@link #connect} takes part in a grow.
   *
   * @param id what {@link #newGrowId} returned on this rank, or null if another rank made it
   */
  CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child);

  /**
   * Launches one operation, outside any group. Allocates nothing.
   *
   * @param send the data to send, or null where the operation or the rank sends none
   * @param recv where to receive, or null where the operation or the rank receives nothing
   * @param count the count that the C function takes, in elements
   * @param operator the code of a reduction's operator, or {@link #NO_OPERATOR}
   * @param peer the root or the peer, or {@link io.nccl4j.Communicator#NO_PEER}
   * @param stream the stream that orders it, of this rank's device
   */
  void launch(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int operator,
      int peer,
      StreamDriver stream);

  /**
   * Returns what this rank has in common with the other ranks in this process and with nothing
   * else: these objects are equal.
   */
  Object communicatorKey();

  /**
   * Throws unless this rank can do the operation on a float8 type.
   *
   * @throws IllegalArgumentException if the device cannot
   * @throws UnsupportedNcclVersionException if NCCL cannot
   */
  void checkFloat8(Operation operation, DataType type);

  /** Creates an operator with an immediate scalar, yet to be rounded; returns its code. */
  int createOperator(DataType type, double scalar);

  /** Creates an operator whose scalar is read when a reduction runs; returns its code. */
  int createOperator(BufferMemory scalar);

  /**
   * Destroys an operator; does nothing once the connection is gone, which took its operators along.
   */
  void destroyOperator(int code);

  /**
   * Returns what has failed since the connection was made, or nothing; also after {@link #abort},
   * when it may be nothing.
   */
  Optional<NcclException> asyncError();

  /**
   * Returns whether the library may still enqueue what a launch that was given up has left.
   * Whatever its streams say, its memory is in use.
   */
  default boolean launching() {
    return false;
  }

  /**
   * Ends the connection at once, possibly while {@link #connect} runs. Called again only after an
   * {@link Error} of this method or of {@link #close}.
   */
  void abort();

  /** Ends the connection in order; called at most once, and not after {@link #abort}. */
  void close();
}
