package io.nccl4j.nccl;

import io.nccl4j.UnsupportedNcclVersionException;

/**
 * What becomes of a setting of {@link NcclConfig} that the loaded NCCL is too old for, and would
 * ignore without a word.
 */
public enum UnsupportedConfigPolicy {
  /** An {@link UnsupportedNcclVersionException}, before anything is called. */
  REFUSE,
  /** A warning in the log; the communicator is made without the setting. */
  WARN
}
