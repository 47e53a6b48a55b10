package io.nccl4j.tools.doctor;

/**
 * A device that the NCCL backend shows.
 *
 * @param index its number in this process
 * @param name its product name
 * @param computeCapability ten times the major number plus the minor one: 90 for 9.0
 */
record Gpu(int index, String name, int computeCapability) {
  /** Returns the compute capability as NVIDIA writes it, such as 9.0. */
  String capability() {
    return computeCapability / 10 + "." + computeCapability % 10;
  }
}
