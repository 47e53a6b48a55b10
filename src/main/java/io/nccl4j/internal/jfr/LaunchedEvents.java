package io.nccl4j.internal.jfr;

import java.util.List;

/**
 * Relates what NCCL's profiler reports to the events of the operations that a thread is launching.
 * NCCL reports each call on the thread that makes it, in the order of the calls.
 */
public final class LaunchedEvents {
  private static final ThreadLocal<LaunchedEvents> LAUNCHING = new ThreadLocal<>();

  // In the order of the calls; null for a call without an event.
  private final List<CollectiveEvent> events;
  // NCCL's number of each call that it has reported.
  private final long[] calls;
  private int reported;

  private LaunchedEvents(List<CollectiveEvent> events) {
    this.events = events;
    this.calls = new long[events.size()];
  }

  /**
   * Launches operations on this thread.
   *
   * @param events the event of each call of NCCL, or null for one that is not recorded
   */
  public static void during(List<CollectiveEvent> events, Runnable launch) {
    LAUNCHING.set(new LaunchedEvents(events));
    try {
      launch.run();
    } finally {
      LAUNCHING.remove();
    }
  }

  /** Records that NCCL has reported the next call of this thread. */
  public static void called(long call, String function, int rank, long count) {
    LaunchedEvents launching = LAUNCHING.get();
    if (launching == null || launching.reported == launching.calls.length) {
      return;
    }
    CollectiveEvent event = launching.events.get(launching.reported);
    if (event != null
        && (!event.operation.equalsIgnoreCase(function)
            || event.rank != rank
            || event.count != count)) {
      // The calls are not those expected, so nothing more is known about this launch.
      LAUNCHING.remove();
      return;
    }
    launching.calls[launching.reported++] = call;
  }

  /** Returns the event of a call that this thread is launching, or null. */
  public static CollectiveEvent of(long call) {
    LaunchedEvents launching = LAUNCHING.get();
    if (launching != null) {
      for (int i = 0; i < launching.reported; i++) {
        if (launching.calls[i] == call) {
          return launching.events.get(i);
        }
      }
    }
    return null;
  }
}
