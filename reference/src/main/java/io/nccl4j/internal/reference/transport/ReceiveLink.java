package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;

/** The receiving end of a link between two ranks. The sending end is a {@link SendLink}. */
public interface ReceiveLink {
  /** Returns the rank that sends. */
  int source();

  /**
   * Returns whether a slice has arrived. The methods below describe the oldest slice that has not
   * been released.
   */
  boolean ready();

  /** Returns the memory that contains the slice; it may be the sender's own memory. */
  MemorySegment memory();

  /** Returns the offset of the slice in {@link #memory}, in bytes. */
  long offset();

  /** Returns the size of the slice in bytes. */
  long bytes();

  /** Returns the signature of the operation that sent the slice. */
  long signature();

  /** Returns whether the sender is gone and everything it sent has been released. */
  boolean exhausted();

  /** Releases the slice; the sender may reuse its memory. */
  void release();
}
