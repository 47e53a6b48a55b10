package io.nccl4j.internal.rendezvous.tcp;

import java.io.IOException;

/** One connection ends with a refusal; thrown where it is noticed, on either side. */
public final class RefusedException extends IOException {
  private static final long serialVersionUID = 1;

  private final Refusal refusal;
  private final String detail;

  public RefusedException(Refusal refusal, String detail) {
    super("it " + refusal.text() + (detail.isEmpty() ? "" : ": " + detail));
    this.refusal = refusal;
    this.detail = detail;
  }

  public Refusal refusal() {
    return refusal;
  }

  /** Returns what is known beyond the refusal; may be empty. */
  public String detail() {
    return detail;
  }
}
