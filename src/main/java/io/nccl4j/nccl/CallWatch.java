package io.nccl4j.nccl;

import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Poller;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Detects calls that exceed the timeout of their blocking communicator, and ends them. Such a call
 * connects to peers or waits until the device accepts more work; NCCL has no deadline for either.
 * Also notices what fails while no thread waits.
 *
 * <p>One thread polls all open communicators. This adds no cost to a call: every entry changes the
 * handle's call number anyway, and a number that stays the same is a call still running.
 */
final class CallWatch {
  private static final long PERIOD_MILLIS = 100;
  private static final int POLLS_BETWEEN_FAILURES = 5;
  private static final Duration ASK_BEFORE = Duration.ofSeconds(5);
  private static final Seen NO_CALL = new Seen(0, 0, 0);
  // Weak references, so that a leaked communicator can be detected. No thread is in a call on it.
  private static final Map<WeakReference<CommunicatorEnd>, Seen> OPEN = new ConcurrentHashMap<>();
  private static final Poller POLLER =
      new Poller(
          Thread.ofPlatform()
              .daemon()
              .inheritInheritableThreadLocals(false)
              .name("nccl4j-call-watch")
              .factory(),
          PERIOD_MILLIS,
          CallWatch::poll,
          OPEN::isEmpty);

  // Only the polling thread uses them.
  private static int polls;
  private static long polledAt;

  private CallWatch() {}

  /**
   * The call that the last poll has seen.
   *
   * @param call the handle's number of the call, or 0
   * @param since when the call was first seen, in nanoseconds
   * @param waited how long the call had been running at the last poll, in nanoseconds
   */
  private record Seen(int call, long since, long waited) {
    /** Returns whether the call has been running for a time since the last poll. */
    boolean passes(Duration time, Seen last) {
      return last.waited < time.toNanos() && time.toNanos() <= waited;
    }
  }

  /** Watches a communicator until it has ended. */
  static void add(CommunicatorEnd end) {
    OPEN.put(new WeakReference<>(end), NO_CALL);
    POLLER.watch();
  }

  private static void poll() {
    long now = System.nanoTime();
    long since = now - polledAt;
    polledAt = now;
    // A call does not end while this process is stopped, and gets the time that was left.
    long stopped = since > Poller.STOPPED_NANOS ? since : 0;
    OPEN.keySet().removeIf(CallWatch::ended);
    OPEN.replaceAll((end, last) -> poll(end, last, now, stopped));
    if (++polls % POLLS_BETWEEN_FAILURES == 0) {
      OPEN.keySet().forEach(CallWatch::noticeFailure);
    }
  }

  private static void noticeFailure(WeakReference<CommunicatorEnd> watched) {
    CommunicatorEnd end = watched.get();
    if (end != null
        && !end.handle().context().failureReported()
        && end.handle().asyncError().isPresent()) {
      // Not on this thread: its records may be written to a file.
      BlockingCalls.start("failure", end.handle().context()::noticeFailure);
    }
  }

  private static boolean ended(WeakReference<CommunicatorEnd> watched) {
    CommunicatorEnd end = watched.get();
    return end == null || end.handle().ended();
  }

  /**
   * Returns the call that is running on a communicator; warns of it, or ends it, if it is late.
   *
   * @param stopped how long this process did not run since the last poll
   */
  private static Seen poll(
      WeakReference<CommunicatorEnd> watched, Seen last, long now, long stopped) {
    CommunicatorEnd end = watched.get();
    int call = end == null || !end.handle().blocking() ? 0 : end.handle().watchedCall();
    if (call == 0) {
      return NO_CALL;
    }
    if (call != last.call()) {
      return new Seen(call, now, 0);
    }
    long since = last.since() + stopped;
    Seen seen = new Seen(call, since, now - since);
    Duration timeout = end.handle().timeout();
    if (seen.passes(Deadline.warning(timeout), last)) {
      end.warnOfCall(call, Duration.ofNanos(now - since));
    }
    if (seen.passes(timeout.minus(askBefore(timeout)), last)) {
      end.askAboutCall(call);
    }
    if (seen.passes(timeout, last)) {
      end.endOverdueCall(call);
    }
    return seen;
  }

  /**
   * Returns how long before the timeout to ask who is late. Ranks that began a little earlier abort
   * by then, and would seem to have left.
   */
  private static Duration askBefore(Duration timeout) {
    long nanos = Math.max(timeout.toNanos() / 10, ASK_BEFORE.toNanos());
    return Duration.ofNanos(Math.min(nanos, timeout.toNanos() / 2));
  }
}
