package io.nccl4j.nccl;

import java.util.stream.Stream;

/**
 * How the operations of a communicator meet CUDA graphs; the less is promised, the more NCCL can
 * leave out. C: {@code ncclConfig_t.graphUsageMode}, from NCCL 2.29 on.
 */
public enum GraphUsage {
  /** No operation is captured. */
  NONE(0),
  /** One graph at a time, and nothing beside it. */
  ONE_GRAPH(1),
  /** Several graphs, or graphs beside plain operations: what NCCL assumes if nothing is said. */
  MIXED(2);

  private final int code;

  GraphUsage(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static GraphUsage of(int code) {
    return Stream.of(values()).filter(value -> value.code == code).findFirst().orElseThrow();
  }
}
