package io.nccl4j.tools.perf;

import java.util.Arrays;
import java.util.Map;

/** Checks whether ranks may share a GPU: NCCL allows it since 2.30, if a variable is set. */
public final class SharedGpus {
  /** The variable that allows it. */
  public static final String VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE";

  private static final int[] SINCE = {2, 30};

  private SharedGpus() {}

  /**
   * Returns why ranks cannot share a GPU, or an empty string if they can.
   *
   * @param nccl the release of NCCL, such as 2.30.7
   * @param environment the environment, from which NCCL reads its variables
   */
  static String refusal(String nccl, Map<String, String> environment) {
    if (!isSupported(nccl)) {
      return "each rank needs its own (sharing needs NCCL 2.30, this is " + nccl + ")";
    }
    return isEnabled(environment.getOrDefault(VARIABLE, ""))
        ? ""
        : "each rank needs its own, unless " + VARIABLE + "=1 is set";
  }

  /**
   * {@return whether a release of NCCL can share GPUs}
   *
   * @param nccl the release, such as 2.30.7
   */
  public static boolean isSupported(String nccl) {
    int[] release = Arrays.stream(nccl.split("\\.", -1)).mapToInt(Integer::parseInt).toArray();
    return Arrays.compare(release, SINCE) >= 0;
  }

  /**
   * {@return whether NCCL takes a value of the variable as true} That is a number other than 0;
   * other text is ignored.
   *
   * @param value the value
   */
  public static boolean isEnabled(String value) {
    try {
      return Long.decode(value.strip()) != 0;
    } catch (NumberFormatException e) {
      return false;
    }
  }
}
