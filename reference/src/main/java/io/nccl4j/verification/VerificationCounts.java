package io.nccl4j.verification;

import java.util.Map;
import org.jspecify.annotations.NullMarked;

/**
 * What a {@link Verification} has done until now, on this rank.
 *
 * @param bits the collectives whose results were compared bit for bit
 * @param bounded the collectives whose results were compared within a bound, since the order of
 *     NCCL's additions cannot be predicted
 * @param findings the findings that were reported
 * @param skipped the collectives that were chosen but not checked, by reason
 */
@NullMarked
public record VerificationCounts(
    long bits, long bounded, long findings, Map<SkipReason, Long> skipped) {
  /** Copies the map. */
  public VerificationCounts {
    skipped = Map.copyOf(skipped);
  }
}
