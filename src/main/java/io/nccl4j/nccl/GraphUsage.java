package io.nccl4j.nccl;

import java.util.stream.Stream;
import org.jspecify.annotations.NullMarked;

/**
 * How a communicator is used with CUDA graphs. The more restricted the usage, the more work NCCL
 * can omit. C: {@code ncclConfig_t.graphUsageMode}, from NCCL 2.29 on.
 */
@NullMarked
public enum GraphUsage {
  /** Operations are never captured. */
  NONE(0),
  /** One graph at a time, and no other operations at the same time. */
  ONE_GRAPH(1),
  /** Several graphs at a time, or graphs together with other operations. NCCL's default. */
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
