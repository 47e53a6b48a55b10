package io.nccl4j.internal.rendezvous.tcp;

import java.io.IOException;

/** A connection is rejected; thrown on the side that detects the reason. */
public final class RejectedException extends IOException {
  private static final long serialVersionUID = 1;

  private final RejectReason reason;
  private final String detail;

  public RejectedException(RejectReason reason, String detail) {
    super("it " + reason.text() + (detail.isEmpty() ? "" : ": " + detail));
    this.reason = reason;
    this.detail = detail;
  }

  public RejectReason reason() {
    return reason;
  }

  /** Returns details beyond the reason; may be empty. */
  public String detail() {
    return detail;
  }
}
