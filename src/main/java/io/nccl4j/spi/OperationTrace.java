package io.nccl4j.spi;

/**
 * The record of operations launched together on one stream, from the call that enqueues them to
 * their completion. Any thread may report their progress.
 */
public interface OperationTrace {
  /** Reports that the stream has started the operations, unless that was reported before. */
  void begun();

  /**
   * Reports that the stream cannot have started the operations before a point in time.
   *
   * @param nanos the time, as a value of {@link System#nanoTime}
   */
  void begunSince(long nanos);

  /**
   * Reports that the operations appear to be complete; the last report counts.
   *
   * @return the time, as a value of {@link System#nanoTime}
   */
  long finished();

  /**
   * Ends the reports and writes the record; only the first call has an effect.
   *
   * @param failure the reason why the operations did not complete, or null
   */
  void ended(Throwable failure);
}
