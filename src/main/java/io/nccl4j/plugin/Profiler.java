package io.nccl4j.plugin;

import org.jspecify.annotations.NullMarked;

/**
 * Receives what NCCL does on this process's communicators; see {@link NcclPlugins#addProfiler}.
 *
 * <p>One thread of nccl4j calls all profilers, in the order of NCCL's events. A profiler may take
 * its time: events that it cannot keep up with are {@linkplain NcclPlugins#droppedEvents dropped}
 * and never delay NCCL. If a profiler throws, the first exception is logged, and it still gets
 * later events.
 */
@NullMarked
@FunctionalInterface
public interface Profiler {
  /**
   * Called for each event.
   *
   * @param event the event
   */
  void accept(ProfilerEvent event);

  /**
   * {@return whether this profiler needs {@link ProfilerEvent.KernelStarted} and {@link
   * ProfilerEvent.KernelStopped}} They are off by default, since NCCL's proxy threads then follow
   * every operation on every channel. Asked when a communicator is created and when a profiler is
   * added or removed.
   */
  default boolean kernelTimes() {
    return false;
  }
}
