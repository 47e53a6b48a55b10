package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;

/**
 * The sending end of a link: a queue of slices from one rank to another, with a fixed number of
 * slots. No method blocks; an end is used by one thread at a time.
 */
public interface SendLink {
  /** Returns whether a slot is free, so that {@link #send} may be called. */
  boolean hasRoom();

  /** Returns the number of slices sent since the link was created. */
  long sent();

  /**
   * Returns the link's own memory. While a slot is free, the next slice may be written to this
   * memory and sent without another copy.
   */
  MemorySegment claim();

  /** Returns the offset of the next slice in {@link #claim}, in bytes. */
  long claimed();

  /**
   * Sends a slice. The memory must not change until the receiver has released the slice or {@link
   * #drained} returns true.
   *
   * @param memory the memory that contains the slice
   * @param offset the offset of the slice in bytes; {@link #claimed} if the memory is {@link
   *     #claim}
   * @param signature the signature of the operation, which the receiver checks
   */
  void send(MemorySegment memory, long offset, long bytes, long signature);

  /** Returns whether the memory of all sent slices may be reused. */
  boolean drained();
}
