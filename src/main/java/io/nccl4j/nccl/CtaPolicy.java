package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.util.stream.Stream;
import org.jspecify.annotations.NullMarked;

/** How NCCL uses thread blocks (CTAs) for a communicator's kernels. From NCCL 2.27 on. */
@NullMarked
public enum CtaPolicy {
  /** Best performance of NCCL's operations. C: {@code NCCL_CTA_POLICY_DEFAULT}. */
  DEFAULT(nccl_h.NCCL_CTA_POLICY_DEFAULT()),
  /**
   * Few thread blocks, to leave more of the device to other kernels. C: {@code
   * NCCL_CTA_POLICY_EFFICIENCY}.
   */
  EFFICIENCY(nccl_h.NCCL_CTA_POLICY_EFFICIENCY()),
  /**
   * No thread blocks where the hardware can move the data without them. C: {@code
   * NCCL_CTA_POLICY_ZERO}, from NCCL 2.28 on.
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
