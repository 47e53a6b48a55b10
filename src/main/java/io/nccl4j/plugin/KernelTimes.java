package io.nccl4j.plugin;

import io.nccl4j.internal.jfr.CollectiveEvent;
import io.nccl4j.internal.jfr.KernelEvent;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Records for JFR how long the kernel of each operation ran, once all its channels have ended.
 * Operations whose events NCCL or a full queue leaves out are forgotten.
 */
final class KernelTimes {
  private static final int MAX_OPERATIONS = 1 << 12;

  /** An operation; all but its creation is on the thread that reads events. */
  private static final class Running {
    private final CollectiveEvent event;
    private int channels;
    private long started = Long.MAX_VALUE;
    private long stopped = Long.MIN_VALUE;

    Running(CollectiveEvent event, int channels) {
      this.event = event;
      this.channels = channels;
    }
  }

  private final Map<Long, Running> operations = new ConcurrentHashMap<>();
  // The operation of each kernel that has not ended.
  private final Map<Long, Long> kernels = new HashMap<>();

  /** Adds an operation that a thread is launching. */
  void launched(long operation, CollectiveEvent event, int channels) {
    if (operations.size() < MAX_OPERATIONS) {
      operations.put(operation, new Running(event, channels));
    }
  }

  /** Takes the next event. */
  void accept(ProfilerEvent event) {
    switch (event) {
      case ProfilerEvent.KernelStarted kernel -> {
        Running running = operations.get(kernel.operation());
        if (running != null) {
          running.started = Math.min(running.started, kernel.timer());
          kernels.put(kernel.id(), kernel.operation());
        }
      }
      case ProfilerEvent.KernelStopped kernel -> stopped(kernel);
      case ProfilerEvent.CommunicatorDestroyed destroyed ->
          // What is still there was aborted, or its events were dropped.
          operations.values().removeIf(running -> running.event.rank == destroyed.rank());
      default -> {}
    }
  }

  private void stopped(ProfilerEvent.KernelStopped kernel) {
    Long operation = kernels.remove(kernel.id());
    Running running = operation == null ? null : operations.get(operation);
    if (running != null) {
      running.stopped = Math.max(running.stopped, kernel.timer());
      running.channels--;
      if (running.channels == 0) {
        operations.remove(operation);
        new KernelEvent(running.event, running.stopped - running.started).commit();
      }
    }
  }
}
