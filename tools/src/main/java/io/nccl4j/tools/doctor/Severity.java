package io.nccl4j.tools.doctor;

/** How much a finding matters. */
enum Severity {
  /** Collectives fail. */
  ERROR,
  /** Collectives may run, and something will hurt. */
  WARNING,
  /** Worth knowing. */
  NOTE,
  /** Something that was not looked at, and why. */
  UNCHECKED
}
