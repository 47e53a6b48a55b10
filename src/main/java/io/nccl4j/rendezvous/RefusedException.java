package io.nccl4j.rendezvous;

import java.io.IOException;

/** One connection ends with a refusal; thrown where it is noticed, on either side. */
final class RefusedException extends IOException {
  private static final long serialVersionUID = 1;

  private final Refusal refusal;
  private final String detail;

  RefusedException(Refusal refusal, String detail) {
    super("it " + refusal.text() + (detail.isEmpty() ? "" : ": " + detail));
    this.refusal = refusal;
    this.detail = detail;
  }

  Refusal refusal() {
    return refusal;
  }

  /** Returns what is known beyond the refusal; may be empty. */
  String detail() {
    return detail;
  }
}
