package io.nccl4j.tools.flight;

import java.util.Set;

/**
 * A difference between the ranks of a communicator.
 *
 * @param ranks the ranks that differ from the others; both halves if neither is the majority
 * @param number the number of the collective or message, or 0
 * @param text the explanation
 */
record Finding(Kind kind, Set<Integer> ranks, long number, String text) {
  /** The kind of a difference. */
  enum Kind {
    /** There is no log of the rank. */
    NO_LOG("no log"),
    /** The rank's dump was written before others made a call. */
    OLDER("older dump"),
    /** The rank has not called a collective that others have called. */
    BEHIND("behind"),
    /** The rank has called another operation. */
    OTHER_OPERATION("other operation"),
    /** The rank has called the operation with another count. */
    OTHER_COUNT("other count"),
    /** The rank has called the operation with another type. */
    OTHER_TYPE("other type"),
    /** The rank has called the operation with another operator or root. */
    OTHER_ARGUMENT("other argument"),
    /** The rank has made the calls of the others in another order. */
    OTHER_ORDER("other order"),
    /** All ranks have called a collective, which some have not completed. */
    NOT_COMPLETED("not completed"),
    /** A send or receive has no counterpart, or one of another count or type. */
    MESSAGE("message");

    private final String label;

    Kind(String label) {
      this.label = label;
    }

    String label() {
      return label;
    }
  }
}
