package io.nccl4j;

import io.nccl4j.spi.CommunicatorContext;
import java.util.Objects;
import java.util.function.Supplier;

/** The one id of a communicator that waits for its grow. */
final class GrowId {
  private final CommunicatorContext communicator;
  private volatile UniqueId waiting;

  GrowId(CommunicatorContext communicator) {
    this.communicator = communicator;
  }

  /** Returns whether an id waits for its grow. */
  boolean waits() {
    return waiting != null;
  }

  /**
   * Makes the id.
   *
   * @throws IllegalStateException if one waits for its grow
   */
  UniqueId make(Supplier<UniqueId> maker) {
    if (waiting != null) {
      throw new IllegalStateException(
          "an id of newGrowId waits for its grow; there is only one at a time: " + communicator);
    }
    waiting = maker.get();
    return waiting;
  }

  /** Throws unless it is the id that waits. */
  void check(UniqueId id) {
    Objects.requireNonNull(id, "id");
    UniqueId there = waiting;
    if (!id.equals(there)) {
      throw new IllegalArgumentException(
          "id is "
              + id
              + "; it must be the one that this communicator's newGrowId gave last, which is good"
              + " for one grow: "
              + (there == null ? "there is none" : there));
    }
  }

  /** Uses up the id, just before the grow begins; null is no id. */
  synchronized void use(UniqueId id) {
    if (id != null) {
      check(id);
      waiting = null;
    }
  }
}
