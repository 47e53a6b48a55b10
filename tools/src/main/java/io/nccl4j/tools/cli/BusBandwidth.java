package io.nccl4j.tools.cli;

import io.nccl4j.Operation;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Bus bandwidth as defined by nccl-tests, which is comparable between operations and numbers of
 * ranks. Operations are named as in {@link Operation#method}.
 *
 * @see <a href="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md">Performance
 *     reported by NCCL tests</a>
 */
public final class BusBandwidth {
  private static final Set<String> SLICED =
      Stream.of(
              Operation.ALL_GATHER,
              Operation.REDUCE_SCATTER,
              Operation.ALL_TO_ALL,
              Operation.GATHER,
              Operation.SCATTER)
          .map(Operation::method)
          .collect(Collectors.toSet());

  private BusBandwidth() {}

  /** {@return whether the count of an operation is that of one rank's slice} */
  public static boolean sliced(String operation) {
    return SLICED.contains(operation);
  }

  /** {@return the bytes that bandwidths are based on: for slices, the sum over all ranks} */
  public static long bytes(String operation, long countedBytes, int ranks) {
    return sliced(operation) ? countedBytes * ranks : countedBytes;
  }

  /** {@return the ratio of bus bandwidth to bytes per time} */
  public static double factor(String operation, int ranks) {
    if (operation.equals(Operation.ALL_REDUCE.method())) {
      return 2.0 * (ranks - 1) / ranks;
    }
    return sliced(operation) ? (ranks - 1.0) / ranks : 1;
  }
}
