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
    private final StreamFence fence;
    private long value;

    Use(StreamFence progress) {
      this.fence = progress;
    }

    StreamFence fence() {
      return fence;
    }

    /** Goes on to a ticket, unless another thread has brought a later one before. */
    void advance(long to) {
      if (value < to) {
        synchronized (this) {
          value = Math.max(value, to);
        }
      }
    }
  }

  // Forgotten once it has run: what it holds may be large, and a thread's last group may hold the
  // buffer.
  private Runnable release;
  // Who must let go before the memory may; under the owner's lock.
  private final List<Buffer.Retention> retentions = new ArrayList<>();
  // Where the memory is, or nowhere once it is closed. Read plainly on the hot path; written once
  // more, before the memory goes.
  private int deviceKey;
  // The stream that used the memory last: most buffers know but one.
  private Use last = new Use(null);
  // Replaced under the owner's lock, never changed.
  private volatile Use[] uses = {};

  MemoryOwner(Runnable release, int place) {
    this.release = release;
    this.deviceKey = place;
  }

  boolean isOpen() {
    return deviceKey != DeviceType.NO_DEVICE;
  }

  /** Returns whether the caller is the one to release the memory. */
  synchronized boolean end(Buffer buffer) {
    if (!isOpen()) {
      return false;
    }
    if (!retentions.isEmpty()) {
      throw new IllegalStateException(
          buffer
              + " cannot be closed: "
              + retentions.getFirst().holder()
              + " still uses its memory");
    }
    deviceKey = DeviceType.NO_DEVICE;
    return true;
  }

  void usedBy(StreamFence progress, long ticket) {
    Use use = last;
    if (use.fence != progress) {
      use = useBy(progress);
    }
    use.advance(ticket);
  }

  private Use useBy(StreamFence progress) {
    // Buffers that take turns on two streams come here each time: nothing is allocated.
    for (Use use : uses) {
      if (use.fence == progress) {
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
                Arrays.stream(uses).filter(earlier -> earlier.fence.alive()),
                java.util.stream.Stream.of(use))
            .toArray(Use[]::new);
    last = use;
    return use;
  }

  /** Returns a use that is not over, or null. */
  Use pending() {
    for (Use use : uses) {
      if (!use.fence.hasPassed(use.value)) {
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
      use.fence.whenPassed(use.value, this::releaseWhenUnused);
    }
  }

  /** Returns whether the memory is there and of this very place. */
  boolean isAt(int there) {
    return deviceKey == there;
  }

  synchronized void add(Buffer.Retention hold) {
    retentions.add(hold);
  }

  synchronized void remove(Buffer.Retention hold) {
    retentions.remove(hold);
  }
}
