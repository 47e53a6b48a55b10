package io.nccl4j.tools.evidence;

import java.util.Arrays;

/** What the loaded libraries are. Only a run with NVIDIA's has results of a GPU. */
enum Libraries {
  NVIDIA(""),
  EMULATED_CUDA(
      "NVIDIA's NCCL on the emulated CUDA of nccl4j's tests, with kernels of nccl4j's own, no GPU"),
  STAND_IN("a test fixture, not NCCL, no GPU");

  private final String description;

  Libraries(String description) {
    this.description = description;
  }

  /** Returns the description for the page; empty for NVIDIA's libraries. */
  String description() {
    return description;
  }

  /** Returns the libraries with a description, or NVIDIA's for null. */
  static Libraries of(String description) {
    return description == null
        ? NVIDIA
        : Arrays.stream(values())
            .filter(libraries -> libraries.description.equals(description))
            .findFirst()
            .orElseThrow(() -> new IllegalArgumentException("unknown libraries " + description));
  }
}
