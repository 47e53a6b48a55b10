package io.nccl4j.plugin;

import io.nccl4j.internal.jfr.CollectiveEvent;
import io.nccl4j.internal.jfr.KernelEvent;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Records for JFR how long the kernel of each operation ran, once all its channels have ended.
 * Operations whose events NCCL or a full queue leaves out make room for later ones.
 */
final class KernelTimes {
  private static final int MAX_OPERATIONS = 1 << 12;
  private static final int MAX_KERNELS = 1 << 16;

  /** The newest entries; thread-safe. */
  private static <V> Map<Long, V> newest(int most) {
    return Collections.synchronizedMap(
        new LinkedHashMap<>() {
          @Override
          protected boolean removeEldestEntry(Map.Entry<Long, V> eldest) {
            return size() > most;
          }
        });
  }

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

  private final Map<Long, Running> operations = newest(MAX_OPERATIONS);
  // The operation of each kernel that has not ended.
  private final Map<Long, Long> kernels = newest(MAX_KERNELS);

  /** Adds an operation that a thread is launching. */
  void launched(long operation, CollectiveEvent event, int channels) {
    operations.put(operation, new Running(event, channels));
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
