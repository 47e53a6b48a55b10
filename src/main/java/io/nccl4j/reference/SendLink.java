package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/**
 * The sending end of a link: a queue of slices from one rank to another, with a fixed number of
 * slots. Nothing here waits; one thread at a time uses an end.
 */
interface SendLink {
  /** Returns the number of slots. */
  int slots();

  /** Returns whether {@link #send} may be called: a slot is free. */
  boolean hasRoom();

  /** Returns how many slices have been sent since the link was made. */
  long sent();

  /**
   * Hands over a slice. Its memory stays as it is until the receiver has released the slice.
   *
   * @param signature what the receiver checks before it takes the slice
   */
  void send(MemorySegment memory, long offset, long bytes, long signature);

  /** Returns whether all that was sent has been released. */
  boolean drained();
}
