package io.nccl4j.plugin;

import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * The profilers and tuners of this process, on all communicators of NCCL.
 *
 * <p>The first of a kind installs NCCL's plugin, which must happen before NCCL is loaded; others
 * may be added and removed at any time. Each environment variable that names a plugin can name only
 * one: if the user has set it, the first {@code add} throws. Thread-safe.
 */
@NullMarked
public final class NcclPlugins {
  private NcclPlugins() {}

  /**
   * Adds a profiler ({@code ncclProfiler_v6}). If the NCCL that is loaded later is older than
   * 2.29.2, loading fails with {@link io.nccl4j.UnsupportedNcclVersionException}.
   *
   * @param profiler the profiler
   * @throws IllegalStateException if it is the first and NCCL is loaded, or if {@code
   *     NCCL_PROFILER_PLUGIN} names another plugin
   */
  public static void addProfiler(Profiler profiler) {
    ProfilerPlugin.INSTANCE.add(Objects.requireNonNull(profiler, "profiler"));
  }

  /**
   * Removes a profiler. It may still get an event that is on its way. Without any, NCCL reports
   * nothing, which costs nothing, until another is added.
   *
   * @param profiler the profiler
   */
  public static void removeProfiler(Profiler profiler) {
    ProfilerPlugin.INSTANCE.remove(Objects.requireNonNull(profiler, "profiler"));
  }

  /**
   * Waits until profilers have received all events that NCCL has reported so far.
   *
   * @param timeout how long to wait at most
   * @return false if they have not within that time
   * @throws InterruptedException if this thread is interrupted
   * @throws IllegalStateException if a profiler calls it, which would wait for itself
   */
  public static boolean awaitEvents(Duration timeout) throws InterruptedException {
    Arguments.positive(timeout, "timeout");
    return ProfilerPlugin.INSTANCE.await(timeout);
  }

  /** {@return the number of events that profilers have missed because they were too slow} */
  public static long droppedEvents() {
    return ProfilerPlugin.INSTANCE.dropped();
  }

  /**
   * Adds a tuner ({@code ncclTunerPlugin_v5}), which sees the changes of those before it. If the
   * NCCL that is loaded later is older than 2.28.3, loading fails with {@link
   * io.nccl4j.UnsupportedNcclVersionException}.
   *
   * @param tuner the tuner
   * @throws IllegalStateException if it is the first and NCCL is loaded, or if {@code
   *     NCCL_TUNER_PLUGIN} names another plugin
   */
  public static void addTuner(Tuner tuner) {
    TunerPlugin.INSTANCE.add(Objects.requireNonNull(tuner, "tuner"));
  }

  /**
   * Removes a tuner.
   *
   * @param tuner the tuner
   */
  public static void removeTuner(Tuner tuner) {
    TunerPlugin.INSTANCE.remove(Objects.requireNonNull(tuner, "tuner"));
  }
}
