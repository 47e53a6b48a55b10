package io.nccl4j.internal.reference.transport;

/** Thrown where a rank of another process has written into shared memory what cannot be. */
public final class ProtocolViolationException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final int rank;
  private final String what;

  public ProtocolViolationException(int rank, String what) {
    super("rank " + rank + " violated the protocol: " + what);
    this.rank = rank;
    this.what = what;
  }

  /** Returns who wrote it. */
  public int rank() {
    return rank;
  }

  /** Returns what is wrong with it. */
  public String what() {
    return what;
  }
}
