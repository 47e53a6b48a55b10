package io.nccl4j;

import java.io.Serializable;
import java.util.BitSet;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;

/**
 * What an {@link NcclException} concerns, as far as is known. Immutable. Backends make it; programs
 * ask the exception.
 *
 * @param communicator the communicator, as {@link Communicator#toString} gives it, or an empty text
 * @param operation the operation, or null
 * @param sequenceNumber the number of the collective in its communicator, from 1, or 0
 * @param failedRanks see {@link NcclException#failedRanks}
 * @param missingRanks see {@link NcclException#missingRanks}
 */
@SuppressWarnings("serial") // The sets are the JDK's own, which are serializable.
public record FailureDetails(
    String communicator,
    Operation operation,
    long sequenceNumber,
    Set<Integer> failedRanks,
    Set<Integer> missingRanks)
    implements Serializable {
  /** What is known where nothing is. */
  static final FailureDetails NONE = new FailureDetails("", null, 0, Set.of(), Set.of());

  /** Copies the sets, whose ranks are then in ascending order. */
  public FailureDetails {
    failedRanks = Collections.unmodifiableSet(new TreeSet<>(failedRanks));
    missingRanks = Collections.unmodifiableSet(new TreeSet<>(missingRanks));
  }

  /**
   * {@return details of what concerns ranks and no operation}
   *
   * @param communicator the communicator, or an empty text
   * @param failed ranks that have failed or left
   * @param missing ranks that were waited for in vain
   */
  public static FailureDetails of(String communicator, BitSet failed, BitSet missing) {
    return new FailureDetails(communicator, null, 0, setOf(failed), setOf(missing));
  }

  /**
   * {@return the same details of an operation}
   *
   * @param what the operation, or null
   * @param number its number among the collectives, or 0
   */
  public FailureDetails in(Operation what, long number) {
    return new FailureDetails(communicator, what, number, failedRanks, missingRanks);
  }

  private static Set<Integer> setOf(BitSet ranks) {
    Set<Integer> set = new TreeSet<>();
    ranks.stream().forEach(set::add);
    return set;
  }

  /** Names the collective, or the communicator, or nothing. */
  String where() {
    return sequenceNumber == 0
        ? communicator
        : "collective " + sequenceNumber + " of " + communicator;
  }
}
