package io.nccl4j.internal.rendezvous.tcp;

import java.io.IOException;

/** One connection ends with a refusal; thrown where it is noticed, on either side. */
public final class RejectedException extends IOException {
  private static final long serialVersionUID = 1;

  private final RejectReason refusal;
  private final String detail;

  public RejectedException(RejectReason refusal, String detail) {
    super("it " + refusal.text() + (detail.isEmpty() ? "" : ": " + detail));
    this.refusal = refusal;
    this.detail = detail;
  }

  public RejectReason refusal() {
    return refusal;
  }

  /** Returns what is known beyond the refusal; may be empty. */
  public String detail() {
    return detail;
  }
}
