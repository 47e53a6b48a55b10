package io.nccl4j.tools.perf;

import java.util.Arrays;
import java.util.Map;

/** Several ranks on one GPU, which NCCL takes from 2.30 on, and only where it is told to. */
final class SharedGpus {
  private static final String VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE";
  private static final int[] SINCE = {2, 30};

  private SharedGpus() {}

  /**
   * Returns why ranks cannot share a GPU, or an empty text if they can.
   *
   * @param nccl the release of NCCL, such as 2.30.7
   * @param environment where NCCL reads its variables
   */
  static String refusal(String nccl, Map<String, String> environment) {
    int[] release = Arrays.stream(nccl.split("\\.", -1)).mapToInt(Integer::parseInt).toArray();
    if (Arrays.compare(release, SINCE) < 0) {
      return "each rank needs its own (to share one takes NCCL 2.30, this is " + nccl + ")";
    }
    return set(environment.getOrDefault(VARIABLE, ""))
        ? ""
        : "each rank needs its own, unless " + VARIABLE + "=1 is set";
  }

  /** Reads a switch as NCCL does: a number that is not 0; what is no number counts for nothing. */
  private static boolean set(String value) {
    try {
      return Long.decode(value.strip()) != 0;
    } catch (NumberFormatException none) {
      return false;
    }
  }
}
