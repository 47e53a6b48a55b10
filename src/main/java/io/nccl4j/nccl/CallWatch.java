package io.nccl4j.nccl;

import io.nccl4j.internal.Poller;
import java.lang.ref.WeakReference;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Finds calls that last for longer than the timeout of their blocking communicator, and has them
 * ended. Such a call connects to its peers, or waits until the device takes more work; NCCL does
 * either without a deadline.
 *
 * <p>One thread looks at every open communicator. A call costs nothing for that: each entry gives
 * its handle another number anyway, and a number that stays is a call that lasts.
 */
final class CallWatch {
  private static final long PERIOD_MILLIS = 100;
  private static final Seen NO_CALL = new Seen(0, 0, false);
  // Weakly: one that was forgotten is reported, not kept, and has no thread in a call.
  private static final Map<WeakReference<CommunicatorEnd>, Seen> OPEN = new ConcurrentHashMap<>();
  private static final Poller WATCHER =
      new Poller(
          Thread.ofPlatform().daemon().name("nccl4j-call-watch").factory(),
          PERIOD_MILLIS,
          CallWatch::poll,
          OPEN::isEmpty);

  private CallWatch() {}

  /**
   * The call that the last look has found.
   *
   * @param call the handle's number of it, or 0
   * @param since when it was first seen, in nanoseconds
   * @param overdue whether something has been done about it
   */
  private record Seen(int call, long since, boolean overdue) {}

  /** Watches a communicator until it has ended. */
  static void add(CommunicatorEnd end) {
    OPEN.put(new WeakReference<>(end), NO_CALL);
    WATCHER.watch();
  }

  private static void poll() {
    OPEN.keySet().removeIf(CallWatch::over);
    OPEN.replaceAll(CallWatch::poll);
  }

  private static boolean over(WeakReference<CommunicatorEnd> watched) {
    CommunicatorEnd end = watched.get();
    return end == null || end.communicator().handle().ended();
  }

  /** Returns what is seen of a communicator now, and acts where a call is overdue. */
  private static Seen poll(WeakReference<CommunicatorEnd> watched, Seen last) {
    CommunicatorEnd end = watched.get();
    int call = end == null ? 0 : end.communicator().handle().enqueuing();
    if (call == 0) {
      return NO_CALL;
    }
    if (call != last.call()) {
      return new Seen(call, System.nanoTime(), false);
    }
    long lasts = System.nanoTime() - last.since();
    if (last.overdue() || lasts < end.communicator().timeout().toNanos()) {
      return last;
    }
    end.endOverdueCall(call);
    return new Seen(call, last.since(), true);
  }
}
