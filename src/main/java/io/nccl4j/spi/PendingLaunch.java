package io.nccl4j.spi;

import java.util.List;

/**
 * Calls that were launched together on one stream, until the stream has completed them. Its methods
 * do not throw and, except {@link #failed}, return at once.
 */
public interface PendingLaunch {
  /** Returns the calls, at least one. */
  List<? extends EnqueuedCall> calls();

  /**
   * Reports that the stream has completed the calls, or that its communicators were aborted; called
   * once.
   *
   * @param nanos when, as {@link System#nanoTime} returns it
   */
  void completed(long nanos);

  /**
   * Reports that the calls failed, so that the stream will not complete them; called instead of
   * {@link #completed}, by drivers that can tell. May write files, for a few seconds at most.
   */
  void failed();

  /**
   * Reports that the stream has not completed the calls yet; called from time to time.
   *
   * @param nanos how long the stream has completed nothing, in nanoseconds
   */
  void pending(long nanos);
}
