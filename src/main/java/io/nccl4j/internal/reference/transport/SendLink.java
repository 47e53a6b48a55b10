package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;

/**
 * The sending end of a link: a queue of slices from one rank to another, with a fixed number of
 * slots. Nothing here waits; one thread at a time uses an end.
 */
public interface SendLink {
  /** Returns the number of slots. */
  int slots();

  /** Returns the size of the largest slice that may be sent, in bytes. */
  default long mostBytes() {
    return Long.MAX_VALUE;
  }

  /** Returns whether {@link #send} may be called: a slot is free. */
  boolean hasRoom();

  /** Returns how many slices have been sent since the link was made. */
  long sent();

  /**
   * Returns the link's own memory, where the next slice may be written to be sent from there
   * without another copy, once there is room; or null, where a link has no memory of its own.
   */
  default MemorySegment claim() {
    return null;
  }

  /** Returns where in {@link #claim} the next slice must start, in bytes. */
  default long claimed() {
    return 0;
  }

  /**
   * Hands over a slice. Its memory stays as it is until the receiver has released the slice, unless
   * {@link #drained} says that it is free before.
   *
   * @param memory where the slice lies; with {@link #claim}'s memory, at {@link #claimed}
   * @param signature what the receiver checks before it takes the slice
   */
  void send(MemorySegment memory, long offset, long bytes, long signature);

  /** Returns whether the memory of all that was sent is the sender's own again. */
  boolean drained();
}
