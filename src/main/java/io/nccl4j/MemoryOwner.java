package io.nccl4j;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The state that a buffer shares with its slices: whether it is open, which streams use its memory,
 * and how to release the memory.
 */
final class MemoryOwner {
  /** The last use of some memory by one stream. */
  static final class Use {
    private final StreamProgress progress;
    private long value;

    Use(StreamProgress progress) {
      this.progress = progress;
    }

    StreamProgress progress() {
      return progress;
    }

    /** Advances to a progress value, unless another thread has set a later one. */
    void advance(long to) {
      if (value < to) {
        synchronized (this) {
          value = Math.max(value, to);
        }
      }
    }
  }

  /** A user of the memory that no stream knows of. */
  private static final class Holder {
    private final String name;

    Holder(String name) {
      this.name = name;
    }
  }

  // Cleared once it has run: it may keep large objects reachable.
  private Runnable release;
  // Must release the memory before it can be freed. Guarded by this.
  private final List<Holder> holders = new ArrayList<>();
  // NO_DEVICE once it is closed. Not volatile, since it is read on the hot path; set before the
  // memory is freed.
  private int deviceKey;
  // The stream that used the memory last; most buffers are used by one stream only.
  private Use last = new Use(null);
  // Copied on write, under the lock of this.
  private volatile Use[] uses = {};

  MemoryOwner(Runnable release, int deviceKey) {
    this.release = release;
    this.deviceKey = deviceKey;
  }

  boolean isOpen() {
    return deviceKey != DeviceType.NO_DEVICE;
  }

  /**
   * Marks the memory as closed; returns whether this call did so, and the caller must release it.
   */
  synchronized boolean end(Buffer buffer) {
    if (!isOpen()) {
      return false;
    }
    if (!holders.isEmpty()) {
      throw new IllegalStateException(
          buffer + " cannot be closed: " + holders.getFirst().name + " still uses its memory");
    }
    deviceKey = DeviceType.NO_DEVICE;
    return true;
  }

  void usedBy(StreamProgress progress, long value) {
    Use use = last;
    if (use.progress != progress) {
      use = useBy(progress);
    }
    use.advance(value);
  }

  private Use useBy(StreamProgress progress) {
    // A buffer that alternates between two streams gets here each time, so nothing is allocated.
    for (Use use : uses) {
      if (use.progress == progress) {
        last = use;
        return use;
      }
    }
    return firstUseBy(progress);
  }

  private synchronized Use firstUseBy(StreamProgress progress) {
    Use use = new Use(progress);
    uses =
        java.util.stream.Stream.concat(
                Arrays.stream(uses)
                    .filter(earlier -> earlier.progress.alive() || earlier.progress.stuck()),
                java.util.stream.Stream.of(use))
            .toArray(Use[]::new);
    last = use;
    return use;
  }

  /** Returns a use that has not completed, or null. */
  Use pending() {
    for (Use use : uses) {
      if (!use.progress.hasPassed(use.value)) {
        return use;
      }
    }
    return null;
  }

  /** Frees the memory; called once, by the thread for which {@link #end} returned true. */
  void release() {
    Runnable now = release;
    release = null;
    now.run();
  }

  /** Frees the memory once no stream uses it any more. */
  void releaseWhenUnused() {
    Use use = pending();
    if (use == null) {
      release();
    } else {
      use.progress.whenPassed(use.value, this::releaseWhenUnused);
    }
  }

  /** Returns whether the memory is open and has this device key. */
  boolean isOpenOn(int key) {
    return deviceKey == key;
  }

  /** Keeps the memory open until the returned action has run. */
  synchronized Runnable retain(String name) {
    Holder holder = new Holder(name);
    holders.add(holder);
    return () -> remove(holder);
  }

  private synchronized void remove(Holder holder) {
    holders.remove(holder);
  }
}
