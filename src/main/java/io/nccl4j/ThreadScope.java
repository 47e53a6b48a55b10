package io.nccl4j;

import java.util.function.Predicate;

/** The open group and the capture of the current thread, for the checks of streams and buffers. */
final class ThreadScope {
  private static final ThreadLocal<Predicate<Stream>> KEPT = new ThreadLocal<>();
  private static final ThreadLocal<Boolean> CAPTURING = ThreadLocal.withInitial(() -> false);

  private ThreadScope() {}

  /**
   * Records that this thread's outermost group begins.
   *
   * @param kept returns whether the group has deferred calls of a stream
   */
  static void beginGroup(Predicate<Stream> kept) {
    KEPT.set(kept);
  }

  /** Records that this thread's outermost group has ended. */
  static void endGroup() {
    // Not removed, since the next group would have to allocate an entry again.
    KEPT.set(null);
  }

  /**
   * Throws if this thread's group has deferred calls of a stream, since another call would run
   * before them.
   */
  static void checkNothingKeptFor(Stream stream, String call) {
    Predicate<Stream> kept = KEPT.get();
    if (kept != null && kept.test(stream)) {
      throw new IllegalStateException(
          call
              + " would run before the group's operations, which are launched when it ends; end the group first: "
              + stream);
    }
  }

  /** Records that this thread begins a capture. */
  static void beginCapture() {
    CAPTURING.set(true);
  }

  /** Records that this thread's capture has ended. */
  static void endCapture() {
    CAPTURING.remove();
  }

  /** Throws if this thread is capturing, since CUDA allows few other calls then. */
  static void checkNotCapturing(String call) {
    if (CAPTURING.get()) {
      throw new IllegalStateException(
          call + " is not possible in Graph.capture; only operations are");
    }
  }
}
