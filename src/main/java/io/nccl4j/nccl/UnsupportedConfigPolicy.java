package io.nccl4j.nccl;

import io.nccl4j.UnsupportedNcclVersionException;
import org.jspecify.annotations.NullMarked;

/**
 * The policy for a setting of {@link NcclConfig} that the loaded NCCL is too old for, and would
 * silently ignore.
 */
@NullMarked
public enum UnsupportedConfigPolicy {
  /** Throws an {@link UnsupportedNcclVersionException} before calling NCCL. */
  REFUSE,
  /** Logs a warning and creates the communicator without the setting. */
  WARN
}
