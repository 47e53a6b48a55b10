package io.nccl4j.reference;

import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.Result;
import io.nccl4j.UniqueId;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * A world that grows: where its ranks and the new ones meet. The registry of this process knows it
 * by its id until all have come, or the rank that made the id has gone.
 */
final class Growth {
  private static final Map<UniqueId, Growth> OPEN = new HashMap<>();

  private final World parent;
  private final Occasion occasion;
  private UniqueId id;
  private int maker;
  private int size;
  private Meeting meeting;

  Growth(World parent, Occasion occasion) {
    this.parent = parent;
    this.occasion = occasion;
  }

  /** Finds what a new rank is to join. */
  static Growth of(UniqueId id, ReferenceOptions options) {
    synchronized (OPEN) {
      Growth growth = OPEN.get(id);
      if (growth == null) {
        throw refused(
            id
                + " is not the id of a grow in this process that is still to come; one is good once");
      }
      if (!options.equals(growth.parent.options())) {
        throw refused(
            "the new rank has other options than the ranks before it: "
                + options
                + ", "
                + growth.parent.options());
      }
      return growth;
    }
  }

  /** Makes the id that new ranks find this by. */
  synchronized UniqueId newId(int rank) {
    if (id != null) {
      throw refused("rank " + maker + " has made an id, which waits for its grow");
    }
    id = Gathering.newId();
    maker = rank;
    synchronized (OPEN) {
      OPEN.put(id, this);
    }
    return id;
  }

  /** Returns where all meet; the first to come says how many they will be. */
  synchronized Meeting meeting(int newSize) {
    if (meeting == null) {
      size = newSize;
      BitSet expected = new BitSet();
      expected.set(0, newSize);
      meeting = new Meeting(Occasion.GROW, parent, expected, this::forget);
    }
    if (newSize != size) {
      throw refused("a rank wants " + newSize + " ranks, the ranks before it " + size);
    }
    return meeting;
  }

  /** Checks that a new rank's number is not that of a rank that the world has. */
  void checkNew(int rank) {
    if (rank < parent.size()) {
      throw refused("rank " + rank + " has its place already; new ranks start at " + parent.size());
    }
  }

  /** Lets nobody find this any more. */
  void forget() {
    synchronized (OPEN) {
      OPEN.remove(id, this);
    }
    parent.forget(occasion);
  }

  private static NcclInvalidUsageException refused(String text) {
    return new NcclInvalidUsageException(Occasion.GROW, Result.INVALID_USAGE.code(), text, "");
  }
}
