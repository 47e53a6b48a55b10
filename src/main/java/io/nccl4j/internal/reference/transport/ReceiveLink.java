package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;

/** The receiving end of a link; see {@link SendLink}. */
public interface ReceiveLink {
  /** Returns the rank that sends. */
  int source();

  /** Returns whether a slice has come; the others tell about the first that is not released. */
  boolean ready();

  /** Returns where the slice lies, which may be the sender's own memory. */
  MemorySegment memory();

  /** Returns where in {@link #memory} the slice starts, in bytes. */
  long offset();

  /** Returns the size of the slice. */
  long bytes();

  /** Returns what the sender said of the operation. */
  long signature();

  /**
   * Returns whether nothing will come any more, for the sender has gone and all it sent has been
   * released.
   */
  boolean exhausted();

  /** Gives the slice back to the sender. */
  void release();
}
