package io.nccl4j.plugin;

import org.jspecify.annotations.NullMarked;

/**
 * Changes what NCCL chooses for collectives; see {@link NcclPlugins#addTuner}.
 *
 * <p>NCCL calls it on the thread that launches a collective, so it must be fast and must not block.
 * It is called on every rank, and must choose the same on all of them, as a function of the table's
 * values and of nothing else that may differ: ranks with different choices hang or compute wrong
 * data. If a tuner throws, the first exception is logged and NCCL's own choice stands.
 */
@NullMarked
@FunctionalInterface
public interface Tuner {
  /**
   * Called before NCCL chooses.
   *
   * @param costs NCCL's estimates, valid during the call; the lowest wins
   */
  void tune(CostTable costs);
}
