package io.nccl4j.internal.reference.collective;

/** One rank's part of a data transfer. Non-blocking, so that one thread can advance many. */
interface Transfer {
  /** Advances the transfer without blocking; returns whether it made progress. */
  boolean advance();

  /** Returns whether the transfer is complete and no other rank reads this rank's memory. */
  boolean done();

  /** Ends a transfer that has failed: afterwards no other rank accesses this rank's memory. */
  default void withdraw() {}
}
