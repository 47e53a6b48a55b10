package io.nccl4j.tools.perf;

import io.nccl4j.plugin.NcclAlgorithm;
import java.util.Arrays;
import java.util.Locale;

/** The values of {@code --algo}: the names of NCCL and of the reference backend. */
public enum Algorithm {
  /** The backend chooses. */
  AUTO,
  /** NCCL and reference. */
  RING,
  /** NCCL and reference. */
  TREE,
  /** Reference only. */
  DIRECT,
  /** NCCL only. */
  NVLS,
  /** NCCL only. */
  NVLS_TREE,
  /** NCCL only. */
  COLLNET_DIRECT,
  /** NCCL only. */
  COLLNET_CHAIN,
  /** NCCL only. */
  PAT;

  /** {@return the name on the command line} */
  public String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /**
   * {@return whether a backend has it}
   *
   * @param backend the backend's name
   */
  public boolean on(String backend) {
    return this == AUTO
        || has(
            backend.equals("reference")
                ? io.nccl4j.reference.Algorithm.values()
                : NcclAlgorithm.values());
  }

  private boolean has(Enum<?>[] algorithms) {
    return Arrays.stream(algorithms).anyMatch(each -> each.name().equals(name()));
  }
}
