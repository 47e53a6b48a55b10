package io.nccl4j.internal.reference.collective;

/**
 * One rank's part in moving data, taken a bit further at a time, so that one thread can see to many
 * of them.
 */
interface Transfer {
  /** Does what can be done without waiting; returns whether that was anything. */
  boolean advance();

  /** Returns whether everything is done, and all memory is this rank's own again. */
  boolean done();
}
