package io.nccl4j;

import io.nccl4j.spi.CommunicatorContext;
import java.util.Objects;
import java.util.function.Supplier;

/** The id of a communicator's next grow; at most one exists at a time. */
final class GrowId {
  private final CommunicatorContext communicator;
  private volatile UniqueId pending;

  GrowId(CommunicatorContext communicator) {
    this.communicator = communicator;
  }

  /** Returns whether an id has been created and not used yet. */
  boolean isPending() {
    return pending != null;
  }

  /**
   * Creates the id.
   *
   * @throws IllegalStateException if an id has not been used yet
   */
  UniqueId create(Supplier<UniqueId> maker) {
    if (pending != null) {
      throw new IllegalStateException(
          "the id of an earlier newGrowId has not been used by a grow yet; call grow first: "
              + communicator);
    }
    pending = maker.get();
    return pending;
  }

  /** Throws unless the id is the unused one. */
  void check(UniqueId id) {
    Objects.requireNonNull(id, "id");
    UniqueId current = pending;
    if (!id.equals(current)) {
      throw new IllegalArgumentException(
          "id is "
              + id
              + "; it must be the last id that newGrowId of this communicator returned, which can be used"
              + " for one grow: "
              + (current == null ? "there is none" : current));
    }
  }

  /** Marks the id as used, just before the grow begins; does nothing for null. */
  synchronized void use(UniqueId id) {
    if (id != null) {
      check(id);
      pending = null;
    }
  }
}
