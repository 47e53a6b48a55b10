package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.util.Set;

/** How memory is registered as a {@link Window}; the same on every rank. */
public enum WindowOption {
  /**
   * Every rank's memory is found at the same offset of one symmetric address range, which is what
   * one-sided operations and NCCL's symmetric kernels need. C: {@code NCCL_WIN_COLL_SYMMETRIC},
   * from NCCL 2.27 on.
   */
  SYMMETRIC(nccl_h.NCCL_WIN_COLL_SYMMETRIC(), FeatureVersions.WINDOWS),

  /**
   * What is written over the network arrives in the order in which it was written. C: {@code
   * NCCL_WIN_STRICT_ORDERING}, from NCCL 2.29.7 on.
   */
  STRICT_ORDERING(nccl_h.NCCL_WIN_STRICT_ORDERING(), FeatureVersions.STRICT_ORDERING);

  private final int flag;
  private final FeatureVersions since;

  WindowOption(int flag, FeatureVersions since) {
    this.flag = flag;
    this.since = since;
  }

  /** Throws unless this release has the option. */
  void require(NcclVersion library) {
    library.require(since, "WindowOption." + name());
  }

  static int flags(Set<WindowOption> options) {
    return options.stream()
        .mapToInt(option -> option.flag)
        .reduce(nccl_h.NCCL_WIN_DEFAULT(), (one, another) -> one | another);
  }
}
