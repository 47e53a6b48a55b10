package io.nccl4j.internal;

/** Refuses virtual threads for calls whose effect belongs to a thread of the operating system. */
public final class PlatformThreads {
  private PlatformThreads() {}

  /**
   * Throws in a virtual thread, which can move to another thread of the operating system and leave
   * CUDA's current device and NCCL's group depth behind.
   *
   * @param function the C function that the caller is about to call
   */
  public static void require(String function) {
    if (Thread.currentThread().isVirtual()) {
      throw new IllegalStateException(
          function
              + " was called in a virtual thread; CUDA and NCCL keep state for each thread of the"
              + " operating system, so use a platform thread");
    }
  }
}
