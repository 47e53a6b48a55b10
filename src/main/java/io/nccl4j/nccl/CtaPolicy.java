package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.util.stream.Stream;

/** What NCCL spends the thread blocks of a communicator's kernels for. From NCCL 2.27 on. */
public enum CtaPolicy {
  /** The fastest operations. C: {@code NCCL_CTA_POLICY_DEFAULT}. */
  DEFAULT(nccl_h.NCCL_CTA_POLICY_DEFAULT()),
  /**
   * Few thread blocks, so that more is left for kernels beside. C: {@code
   * NCCL_CTA_POLICY_EFFICIENCY}.
   */
  EFFICIENCY(nccl_h.NCCL_CTA_POLICY_EFFICIENCY()),
  /**
   * None where the hardware can move the data without. C: {@code NCCL_CTA_POLICY_ZERO}, from NCCL
   * 2.28 on.
   */
  ZERO(nccl_h.NCCL_CTA_POLICY_ZERO());

  private final int code;

  CtaPolicy(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static CtaPolicy of(int code) {
    return Stream.of(values()).filter(value -> value.code == code).findFirst().orElseThrow();
  }
}
