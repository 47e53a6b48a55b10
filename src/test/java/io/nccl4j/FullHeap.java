package io.nccl4j;

import java.util.List;

/** Fills the heap of a child JVM, so that allocations in all threads fail. */
public final class FullHeap {
  /** The options of such a JVM: a small heap and no thread-local allocation buffers. */
  public static final List<String> OPTIONS =
      List.of("-Xmx16m", "-XX:+UseSerialGC", "-XX:-UseTLAB", "-XX:TieredStopAtLevel=1");

  private static final int LARGEST = 1 << 20;

  @SuppressWarnings("UnusedVariable") // It only has to be reachable.
  private static Object[] retained;

  private FullHeap() {}

  /** Allocates all memory of the heap, down to the smallest array. */
  public static void fill() {
    Object[] all = new Object[1 << 14];
    int count = 0;
    int bytes = LARGEST;
    while (bytes > 0 && count < all.length) {
      try {
        all[count] = new byte[bytes];
        count++;
      } catch (OutOfMemoryError full) {
        // A smaller array may still fit.
        bytes /= 2;
      }
    }
    retained = all;
  }

  /** Frees the memory allocated by {@link #fill}. */
  public static void release() {
    retained = null;
  }
}
