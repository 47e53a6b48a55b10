package io.nccl4j.tools.doctor;

/** The severity of a finding, most severe first. */
enum Severity {
  /** Collectives fail. */
  ERROR,
  /** Collectives may run, but slowly, unreliably or not as configured. */
  WARNING,
  /** For information. */
  NOTE,
  /** Could not be checked; the finding gives the reason. */
  UNCHECKED
}
