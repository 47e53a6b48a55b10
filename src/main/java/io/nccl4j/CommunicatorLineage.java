package io.nccl4j;

import java.util.List;
import java.util.Objects;
import java.util.SortedSet;

/**
 * How a communicator is created, and its identity in recordings. Every rank derives the same
 * identity without communication, except ranks that join a growing communicator: they know only the
 * id and use its fingerprint.
 *
 * @param step how it is created: {@code init}, {@code split}, {@code shrink}, {@code grow} or
 *     {@code join}
 * @param parent the communicator that it is created from, or null
 * @param fingerprint the fingerprint of its unique id, or null if this rank does not have the id
 * @param choice distinguishes it from other communicators that ranks of the parent create at the
 *     same time
 */
record CommunicatorLineage(
    String step, CommunicatorCore parent, String fingerprint, String choice) {
  /** The maximum number of excluded ranks that the identity of a shrink lists; more are hashed. */
  private static final int MAX_LISTED = 8;

  /**
   * {@return the lineage of a communicator created with unique ids}
   *
   * @param ids the ids
   */
  static CommunicatorLineage init(List<UniqueId> ids) {
    int hash = ids.size() == 1 ? ids.getFirst().hashCode() : ids.hashCode();
    return new CommunicatorLineage("init", null, hex(hash), "");
  }

  /**
   * {@return the lineage on a new rank that joins a communicator}
   *
   * @param growId the id of the grow
   */
  static CommunicatorLineage join(UniqueId growId) {
    return new CommunicatorLineage("join", null, hex(growId.hashCode()), "");
  }

  /**
   * {@return the lineage of a communicator created by a split}
   *
   * @param parent the communicator that is split
   * @param color the color, or a negative number for none
   */
  static CommunicatorLineage split(CommunicatorCore parent, int color) {
    return new CommunicatorLineage("split", parent, null, color < 0 ? "" : "." + color);
  }

  /**
   * {@return the lineage of a communicator created by a shrink}
   *
   * @param parent the communicator that shrinks
   * @param excluded the excluded ranks
   */
  static CommunicatorLineage shrink(CommunicatorCore parent, SortedSet<Integer> excluded) {
    String ranks =
        excluded.size() > MAX_LISTED
            ? hex(excluded.hashCode())
            : String.join(",", excluded.stream().map(Object::toString).toList());
    return new CommunicatorLineage("shrink", parent, null, "-" + ranks);
  }

  /**
   * {@return the lineage on an existing rank of a communicator that grows}
   *
   * @param parent the communicator that grows
   * @param id the id, or null on the ranks that did not create it
   */
  static CommunicatorLineage grow(CommunicatorCore parent, UniqueId id) {
    return new CommunicatorLineage("grow", parent, id == null ? null : hex(id.hashCode()), "");
  }

  /** Returns the identity. Called once, since it increments the parent's count of children. */
  String identity() {
    return parent == null
        ? Objects.requireNonNull(fingerprint)
        : parent.identity() + "/" + step + parent.countChild(this) + choice;
  }

  /** Returns the key by which the parent counts: a shrink is known only to the surviving ranks. */
  String kind() {
    return step.equals("shrink") ? step + choice : step;
  }

  /**
   * Returns this rank's number in the parent; -1 if there is no parent, or one that not every rank
   * was in.
   */
  int parentRank() {
    return parent == null || step.equals("grow") ? -1 : parent.rank();
  }

  private static String hex(int hash) {
    String digits = Integer.toHexString(hash);
    return "0".repeat(2 * Integer.BYTES - digits.length()) + digits;
  }
}
