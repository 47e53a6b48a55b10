package io.nccl4j;

/**
 * What this thread has begun and not ended, as far as streams and buffers ask for it: a group that
 * keeps calls, a capture.
 */
final class ThreadScope {
  /** The calls that an open group keeps. */
  interface KeptCalls {
    /** Returns whether any of them is of this stream. */
    boolean anyOf(Stream stream);
  }

  private static final ThreadLocal<KeptCalls> KEPT = new ThreadLocal<>();
  private static final ThreadLocal<Boolean> CAPTURING = ThreadLocal.withInitial(() -> false);

  private ThreadScope() {}

  /** Notes that this thread's outermost group begins. */
  static void beginGroup(KeptCalls kept) {
    KEPT.set(kept);
  }

  /** Notes that this thread's outermost group keeps no more calls. */
  static void endGroup() {
    // Not removed: the next group would make an entry anew.
    KEPT.set(null);
  }

  /** Throws if this thread's group keeps calls of a stream, which another call means to follow. */
  static void checkNothingKeptFor(Stream stream, String call) {
    KeptCalls kept = KEPT.get();
    if (kept != null && kept.anyOf(stream)) {
      throw new IllegalStateException(
          call
              + " would come before the group's operations, which are launched when it ends; end the group first: "
              + stream);
    }
  }

  /** Notes that this thread begins to capture. */
  static void beginCapture() {
    CAPTURING.set(true);
  }

  /** Notes that this thread captures no longer. */
  static void endCapture() {
    CAPTURING.remove();
  }

  /** Throws if this thread is capturing, which CUDA allows little beside. */
  static void checkNotCapturing(String call) {
    if (CAPTURING.get()) {
      throw new IllegalStateException(
          call + " is not possible in Graph.capture; only operations are");
    }
  }
}
