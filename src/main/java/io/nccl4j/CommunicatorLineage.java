package io.nccl4j;

import java.util.List;
import java.util.Objects;
import java.util.SortedSet;

/**
 * How a communicator comes to be, and what recordings call it. Every rank of a communicator finds
 * the same name without asking the others; only those that join one that grows know no more than
 * its id, by whose fingerprint they call it.
 *
 * @param step how it is made: {@code init}, {@code split}, {@code shrink}, {@code grow} or {@code
 *     join}
 * @param parent what it is made of, or null
 * @param fingerprint that of its unique id, or null where this rank does not have the id
 * @param choice what tells it from what else the parent's ranks make at the same time
 */
record CommunicatorLineage(
    String step, CommunicatorCore parent, String fingerprint, String choice) {
  /** For shrinks: so many ranks are told by their numbers, more by a fingerprint. */
  private static final int FEW = 8;

  /**
   * {@return the origin of a communicator that is made by its ids}
   *
   * @param ids the ids
   */
  static CommunicatorLineage init(List<UniqueId> ids) {
    int hash = ids.size() == 1 ? ids.getFirst().hashCode() : ids.hashCode();
    return new CommunicatorLineage("init", null, hex(hash), "");
  }

  /**
   * {@return the origin of a new rank's end of a communicator that grows}
   *
   * @param growId the id of the grow
   */
  static CommunicatorLineage join(UniqueId growId) {
    return new CommunicatorLineage("join", null, hex(growId.hashCode()), "");
  }

  /**
   * {@return the origin of a part of a communicator}
   *
   * @param parent the communicator that is split
   * @param color the part, or a negative number for none
   */
  static CommunicatorLineage split(CommunicatorCore parent, int color) {
    return new CommunicatorLineage("split", parent, null, color < 0 ? "" : "." + color);
  }

  /**
   * {@return the origin of what is left of a communicator}
   *
   * @param parent the communicator that shrinks
   * @param excluded the ranks that are left out
   */
  static CommunicatorLineage shrink(CommunicatorCore parent, SortedSet<Integer> excluded) {
    String ranks =
        excluded.size() > FEW
            ? hex(excluded.hashCode())
            : String.join(",", excluded.stream().map(Object::toString).toList());
    return new CommunicatorLineage("shrink", parent, null, "-" + ranks);
  }

  /**
   * {@return the origin of a rank's new end of its communicator, which grows}
   *
   * @param parent the communicator that grows
   * @param id the id, or null on the ranks that did not make it
   */
  static CommunicatorLineage grow(CommunicatorCore parent, UniqueId id) {
    return new CommunicatorLineage("grow", parent, id == null ? null : hex(id.hashCode()), "");
  }

  /** Returns the name, which for a child counts what the parent has made; called once. */
  String identity() {
    return parent == null
        ? Objects.requireNonNull(fingerprint)
        : parent.identity() + "/" + step + parent.countChild(this) + choice;
  }

  /** Returns what the parent counts together: a shrink is known only to the ranks that stay. */
  String kind() {
    return step.equals("shrink") ? step + choice : step;
  }

  private static String hex(int hash) {
    String digits = Integer.toHexString(hash);
    return "0".repeat(2 * Integer.BYTES - digits.length()) + digits;
  }
}
