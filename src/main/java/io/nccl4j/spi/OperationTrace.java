package io.nccl4j.spi;

/**
 * What is recorded of the operations that one stream carries together, from the call that enqueues
 * them until the stream has passed them. Any thread may report how far they are.
 */
public interface OperationTrace {
  /** Reports that the stream has come to the operations, unless that was reported before. */
  void begun();

  /**
   * Reports that the stream cannot have come to the operations before a moment.
   *
   * @param nanos the moment, as {@link System#nanoTime} has it
   */
  void begunSince(long nanos);

  /**
   * Reports that the operations are over, as far as is known; the last report counts.
   *
   * @return the moment, as {@link System#nanoTime} has it
   */
  long finished();

  /**
   * Reports that nothing more will be reported, and records it all; only the first call does.
   *
   * @param failure why the operations were not finished, or null
   */
  void ended(Throwable failure);
}
