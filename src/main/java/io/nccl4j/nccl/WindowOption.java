package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.util.Set;
import org.jspecify.annotations.NullMarked;

/** An option for registering a {@link Window}. Every rank must use the same options. */
@NullMarked
public enum WindowOption {
  /**
   * Maps the memory of every rank at the same offset of a symmetric address range. One-sided
   * operations and NCCL's symmetric kernels need this. C: {@code NCCL_WIN_COLL_SYMMETRIC}, from
   * NCCL 2.27 on.
   */
  SYMMETRIC(nccl_h.NCCL_WIN_COLL_SYMMETRIC(), FeatureVersions.WINDOWS),

  /**
   * Writes over the network arrive in the order in which they were made. C: {@code
   * NCCL_WIN_STRICT_ORDERING}, from NCCL 2.29.7 on.
   */
  STRICT_ORDERING(nccl_h.NCCL_WIN_STRICT_ORDERING(), FeatureVersions.STRICT_ORDERING);

  private final int flag;
  private final FeatureVersions since;

  WindowOption(int flag, FeatureVersions since) {
    this.flag = flag;
    this.since = since;
  }

  /** Checks that this release has the option. */
  void require(NcclVersion library) {
    library.require(since, "WindowOption." + name());
  }

  static int flags(Set<WindowOption> options) {
    return options.stream()
        .mapToInt(option -> option.flag)
        .reduce(nccl_h.NCCL_WIN_DEFAULT(), (one, another) -> one | another);
  }
}
