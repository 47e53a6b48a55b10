package io.nccl4j.rendezvous;

import java.io.IOException;

/** One connection ends with a refusal; thrown where it is noticed, on either side. */
final class RefusedException extends IOException {
  private static final long serialVersionUID = 1;

  private final Refusal refusal;

  RefusedException(Refusal refusal, String detail) {
    super(detail);
    this.refusal = refusal;
  }

  Refusal refusal() {
    return refusal;
  }
}
