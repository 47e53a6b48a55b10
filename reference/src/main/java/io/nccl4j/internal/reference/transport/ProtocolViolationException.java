package io.nccl4j.internal.reference.transport;

/** Thrown if a rank of another process has sent invalid data over a link. */
public final class ProtocolViolationException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final int rank;
  private final String detail;

  public ProtocolViolationException(int rank, String detail) {
    super("rank " + rank + " violated the protocol: " + detail);
    this.rank = rank;
    this.detail = detail;
  }

  /** Returns the rank that violated the protocol. */
  public int rank() {
    return rank;
  }

  /** Returns the message without the rank. */
  public String what() {
    return detail;
  }
}
