package io.nccl4j.nccl;

import io.nccl4j.UnsupportedNcclVersionException;

/**
 * A release of NCCL.
 *
 * @param code the number that {@code ncclGetVersion} gives, such as 23007
 */
record NcclVersion(int code) implements Comparable<NcclVersion> {
  static NcclVersion of(int major, int minor, int patch) {
    return new NcclVersion(major * 10000 + minor * 100 + patch);
  }

  /** Returns whether this release has what came with a given one. */
  boolean has(FeatureVersions first) {
    return atLeast(first.version());
  }

  /** Throws unless this release has the function of NCCL. */
  void require(String function) {
    require(FeatureVersions.of(function), function);
  }

  /** Throws unless this release has what came with a given one, which the caller asked for. */
  void require(FeatureVersions first, String function) {
    require(first.version(), function);
  }

  boolean atLeast(NcclVersion other) {
    return compareTo(other) >= 0;
  }

  /** Throws unless this release has the function that came with another. */
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
