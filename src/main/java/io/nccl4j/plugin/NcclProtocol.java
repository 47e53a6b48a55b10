package io.nccl4j.plugin;

import org.jspecify.annotations.NullMarked;

/** The protocols of NCCL. */
@NullMarked
public enum NcclProtocol {
  /** Low latency: 4 bytes of data with each 4 bytes of flag. */
  LL(0),
  /** Low latency with 120 bytes of data in each line of 128. */
  LL128(1),
  /** Large chunks, synchronized by memory fences. */
  SIMPLE(2);

  private final int code;

  NcclProtocol(int code) {
    this.code = code;
  }

  /** Returns NCCL's number. */
  int code() {
    return code;
  }
}
