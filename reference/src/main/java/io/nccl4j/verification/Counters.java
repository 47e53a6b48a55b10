package io.nccl4j.verification;

import java.util.EnumMap;
import java.util.Map;

/** The counters of a {@link Verification}. Thread-safe. */
final class Counters {
  private long bits;
  private long bounded;
  private long findings;
  private final Map<SkipReason, Long> skipped = new EnumMap<>(SkipReason.class);

  synchronized void compared(boolean exactly) {
    if (exactly) {
      bits++;
    } else {
      bounded++;
    }
  }

  synchronized void found() {
    findings++;
  }

  synchronized void skipped(SkipReason reason) {
    skipped.merge(reason, 1L, Long::sum);
  }

  synchronized VerificationCounts counts() {
    return new VerificationCounts(bits, bounded, findings, skipped);
  }
}
