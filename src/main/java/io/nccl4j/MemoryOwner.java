package io.nccl4j;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What a buffer and all views of it share: whether the memory is still there, which streams use it,
 * and how to release it.
 */
final class MemoryOwner {
  /** The last use of some memory by one stream. */
  static final class Use {
    private final StreamFence progress;
    private long ticket;

    Use(StreamFence progress) {
      this.progress = progress;
    }

    StreamFence progress() {
      return progress;
    }

    /** Goes on to a ticket, unless another thread has brought a later one before. */
    void goOn(long to) {
      if (ticket < to) {
        synchronized (this) {
          ticket = Math.max(ticket, to);
        }
      }
    }
  }

  // Forgotten once it has run: what it holds may be large, and a thread's last group may hold the
  // buffer.
  private Runnable release;
  // Who must let go before the memory may; under the owner's lock.
  private final List<Buffer.Retention> holds = new ArrayList<>();
  // Where the memory is, or nowhere once it is closed. Read plainly on the hot path; written once
  // more, before the memory goes.
  private int place;
  // The stream that used the memory last: most buffers know but one.
  private Use last = new Use(null);
  // Replaced under the owner's lock, never changed.
  private volatile Use[] uses = {};

  MemoryOwner(Runnable release, int place) {
    this.release = release;
    this.place = place;
  }

  boolean open() {
    return place != DeviceType.NOWHERE;
  }

  /** Returns whether the caller is the one to release the memory. */
  synchronized boolean end(Buffer buffer) {
    if (!open()) {
      return false;
    }
    if (!holds.isEmpty()) {
      throw new IllegalStateException(
          buffer + " cannot be closed: " + holds.getFirst().holder() + " still uses its memory");
    }
    place = DeviceType.NOWHERE;
    return true;
  }

  void usedBy(StreamFence progress, long ticket) {
    Use use = last;
    if (use.progress != progress) {
      use = useBy(progress);
    }
    use.goOn(ticket);
  }

  private Use useBy(StreamFence progress) {
    // Buffers that take turns on two streams come here each time: nothing is allocated.
    for (Use use : uses) {
      if (use.progress == progress) {
        last = use;
        return use;
      }
    }
    return firstUseBy(progress);
  }

  private synchronized Use firstUseBy(StreamFence progress) {
    Use use = new Use(progress);
    uses =
        java.util.stream.Stream.concat(
                Arrays.stream(uses).filter(earlier -> earlier.progress.alive()),
                java.util.stream.Stream.of(use))
            .toArray(Use[]::new);
    last = use;
    return use;
  }

  /** Returns a use that is not over, or null. */
  Use pending() {
    for (Use use : uses) {
      if (!use.progress.hasPassed(use.ticket)) {
        return use;
      }
    }
    return null;
  }

  /** Frees the memory; called once, by the one thread that has ended it. */
  void release() {
    Runnable now = release;
    release = null;
    now.run();
  }

  /** Gives the memory back once no stream uses it any more. */
  void releaseWhenUnused() {
    Use use = pending();
    if (use == null) {
      release();
    } else {
      use.progress.whenPassed(use.ticket, this::releaseWhenUnused);
    }
  }

  /** Returns whether the memory is there and of this very place. */
  boolean isAt(int there) {
    return place == there;
  }

  synchronized void add(Buffer.Retention hold) {
    holds.add(hold);
  }

  synchronized void remove(Buffer.Retention hold) {
    holds.remove(hold);
  }
}
