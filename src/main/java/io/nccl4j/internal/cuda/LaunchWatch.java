package io.nccl4j.internal.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.Poller;
import io.nccl4j.spi.PendingLaunch;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.logging.log4j.Logger;

/**
 * Follows what is launched on a stream until the device has completed it.
 *
 * <p>The launching thread records an event after each launch. One thread of the process queries the
 * events, in the order of the launches, and touches no stream: an event query does not wait for the
 * device, while other calls of CUDA may wait behind a kernel whose peer does not come.
 */
final class LaunchWatch {
  private static final Logger LOG = Loggers.of(LaunchWatch.class);
  private static final long PERIOD_MILLIS = 100;

  // More than a device queues: a launch waits for one of about a thousand before it. What is
  // launched beyond is not followed.
  private static final int MOST_PENDING = 2048;

  private static final Set<LaunchWatch> ACTIVE = ConcurrentHashMap.newKeySet();
  // Events are kept for the process's life: creating one takes longer than a launch.
  private static final Map<Integer, Queue<CudaEventDriver>> UNUSED = new ConcurrentHashMap<>();
  private static final Poller POLLER =
      new Poller(
          Thread.ofPlatform()
              .daemon()
              .inheritInheritableThreadLocals(false)
              .name("nccl4j-watchdog")
              .factory(),
          PERIOD_MILLIS,
          () -> ACTIVE.forEach(LaunchWatch::poll),
          ACTIVE::isEmpty);

  private final CudaStreamDriver stream;
  private final Queue<Launch> pending = new ConcurrentLinkedQueue<>();
  private final AtomicInteger length = new AtomicInteger();

  // Held to look at the first launches; never while waiting.
  private final ReentrantLock polling = new ReentrantLock();
  // When the device was last seen to complete a launch, and when it was last looked at; guarded by
  // the lock.
  private long completedAt = System.nanoTime();
  private long polledAt = completedAt;

  private record Launch(PendingLaunch launched, CudaEventDriver end, long at) {}

  LaunchWatch(CudaStreamDriver stream) {
    this.stream = stream;
  }

  /** Follows what this thread has just launched, unless other code captures the stream. */
  void follow(PendingLaunch launched) {
    if (length.get() >= MOST_PENDING) {
      poll(); // what the device has completed since the last poll
      if (length.get() >= MOST_PENDING) {
        return;
      }
    }
    Queue<CudaEventDriver> unused =
        UNUSED.computeIfAbsent(stream.device(), device -> new ConcurrentLinkedQueue<>());
    CudaEventDriver end = unused.poll();
    if (end == null) {
      end = CaptureMode.relaxed(stream.device(), this::newEvent);
    }
    boolean recorded = false;
    try {
      recorded = stream.recordUnlessCapturing(end);
    } finally {
      if (!recorded) {
        unused.add(end);
      }
    }
    if (!recorded) {
      return;
    }
    length.incrementAndGet();
    pending.add(new Launch(launched, end, System.nanoTime()));
    ACTIVE.add(this);
    POLLER.watch();
  }

  private CudaEventDriver newEvent() {
    return CudaEventDriver.createWithoutTiming(stream.device());
  }

  private void poll() {
    if (!polling.tryLock()) {
      return;
    }
    try {
      CaptureMode.runRelaxed(stream.device(), this::pollOnDevice);
    } catch (CudaException broken) {
      // The device does no more work, and must not keep those of other devices from being looked
      // at. Waits for the stream throw its error.
      LOG.debug("{}: what was launched is not followed any more", stream, broken);
      for (Launch next = pending.poll(); next != null; next = pending.poll()) {
        length.decrementAndGet();
        next.launched.failed();
      }
    } finally {
      polling.unlock();
    }
    if (pending.isEmpty()) {
      ACTIVE.remove(this);
      if (!pending.isEmpty()) {
        ACTIVE.add(this); // launched meanwhile
      }
    }
  }

  private void pollOnDevice() {
    for (Launch first = pending.peek(); first != null; first = pending.peek()) {
      long now = System.nanoTime();
      if (!ended(first, now)) {
        // Counted from the launch, or from the end of the launch before it.
        long waited = Math.min(now - first.at, now - completedAt);
        long since = Math.min(waited, now - polledAt);
        if (since > Poller.STOPPED_NANOS) {
          // This process was stopped, and perhaps its peers too: they get the time that was left.
          waited -= since;
          completedAt = now - waited;
        }
        polledAt = now;
        first.launched.pending(waited);
        return;
      }
      pending.remove();
      length.decrementAndGet();
      completedAt = now;
    }
  }

  /** Returns whether the device has completed a launch, or does no more work, and reports that. */
  private boolean ended(Launch launch, long now) {
    try {
      if (!launch.end.reached()) {
        return false;
      }
    } catch (CudaException failure) {
      // Waits for the stream throw it; the event is not used again.
      LOG.debug("{}: what was launched is not followed any more", stream, failure);
      launch.launched.failed();
      return true;
    }
    UNUSED.get(stream.device()).add(launch.end);
    launch.launched.completed(now);
    return true;
  }
}
