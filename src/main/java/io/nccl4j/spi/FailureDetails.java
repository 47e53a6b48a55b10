package io.nccl4j.spi;

import io.nccl4j.Operation;
import java.io.Serializable;
import java.util.BitSet;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;

/**
 * The known details of an {@link io.nccl4j.NcclException}; immutable. Programs use the methods of
 * the exception.
 *
 * @param communicator the communicator, as {@link io.nccl4j.Communicator#toString} returns it, or
 *     an empty string
 * @param operation the operation, or null
 * @param sequenceNumber the number of the collective in its communicator, from 1, or 0
 * @param failedRanks see {@link io.nccl4j.NcclException#failedRanks}
 * @param missingRanks see {@link io.nccl4j.NcclException#missingRanks}
 */
@SuppressWarnings("serial") // The sets are the JDK's own, which are serializable.
public record FailureDetails(
    String communicator,
    Operation operation,
    long sequenceNumber,
    Set<Integer> failedRanks,
    Set<Integer> missingRanks)
    implements Serializable {
  /** No details. */
  public static final FailureDetails NONE = new FailureDetails("", null, 0, Set.of(), Set.of());

  /** Copies the sets in ascending order. */
  public FailureDetails {
    failedRanks = Collections.unmodifiableSet(new TreeSet<>(failedRanks));
    missingRanks = Collections.unmodifiableSet(new TreeSet<>(missingRanks));
  }

  /**
   * {@return details that name ranks and no operation}
   *
   * @param communicator the communicator, or an empty string
   * @param failed ranks that have failed or closed their communicator
   * @param missing ranks that had not responded when the timeout expired
   */
  public static FailureDetails of(String communicator, BitSet failed, BitSet missing) {
    return new FailureDetails(communicator, null, 0, setOf(failed), setOf(missing));
  }

  /**
   * {@return a copy with an operation}
   *
   * @param what the operation, or null
   * @param number the sequence number of the collective, or 0
   */
  public FailureDetails in(Operation what, long number) {
    return new FailureDetails(communicator, what, number, failedRanks, missingRanks);
  }

  private static Set<Integer> setOf(BitSet ranks) {
    Set<Integer> set = new TreeSet<>();
    ranks.stream().forEach(set::add);
    return set;
  }

  /** Returns the collective and its communicator, or the communicator alone, or an empty string. */
  public String where() {
    return sequenceNumber == 0
        ? communicator
        : "collective " + sequenceNumber + " of " + communicator;
  }
}
