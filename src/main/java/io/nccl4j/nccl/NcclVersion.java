package io.nccl4j.nccl;

import io.nccl4j.UnsupportedNcclVersionException;

/**
 * A release of NCCL.
 *
 * @param code the number that {@code ncclGetVersion} returns, such as 23007
 */
record NcclVersion(int code) implements Comparable<NcclVersion> {
  static NcclVersion of(int major, int minor, int patch) {
    return new NcclVersion(major * 10000 + minor * 100 + patch);
  }

  /** Returns whether this release has a feature. */
  boolean has(FeatureVersions feature) {
    return atLeast(feature.version());
  }

  /** Checks that this release has an NCCL function. */
  void require(String function) {
    require(FeatureVersions.of(function), function);
  }

  /**
   * Checks that this release has a feature.
   *
   * @param function the function or feature that the exception names
   */
  void require(FeatureVersions feature, String function) {
    require(feature.version(), function);
  }

  boolean atLeast(NcclVersion other) {
    return compareTo(other) >= 0;
  }

  /** Checks that this release is at least the one that a function needs. */
  void require(NcclVersion needed, String function) {
    if (!atLeast(needed)) {
      throw new UnsupportedNcclVersionException(function, toString(), needed.toString());
    }
  }

  @Override
  public int compareTo(NcclVersion other) {
    return Integer.compare(code, other.code);
  }

  @Override
  public String toString() {
    return code / 10000 + "." + code / 100 % 100 + "." + code % 100;
  }
}
