package io.nccl4j;

import java.util.List;

/** Fills the heap of a Java process of its own, so that every allocation of every thread fails. */
public final class FullHeap {
  /** What such a process is started with: a small heap, and no thread with a reserve of its own. */
  public static final List<String> OPTIONS =
      List.of("-Xmx16m", "-XX:+UseSerialGC", "-XX:-UseTLAB", "-XX:TieredStopAtLevel=1");

  private static final int LARGEST = 1 << 20;

  @SuppressWarnings("UnusedVariable") // It only has to be reachable.
  private static Object[] kept;

  private FullHeap() {}

  /** Keeps all memory that there is, down to the last object. */
  public static void fill() {
    Object[] all = new Object[1 << 14];
    int count = 0;
    int bytes = LARGEST;
    while (bytes > 0 && count < all.length) {
      try {
        all[count] = new byte[bytes];
        count++;
      } catch (OutOfMemoryError full) {
        // A smaller one may still fit.
        bytes /= 2;
      }
    }
    kept = all;
  }

  /** Lets go of it all. */
  public static void release() {
    kept = null;
  }
}
