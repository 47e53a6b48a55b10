package io.nccl4j.tools.doctor;

/**
 * A GPU that the NCCL backend reports.
 *
 * @param index its device number in this process
 * @param name its product name
 * @param computeCapability 10 times the major number plus the minor one: 90 for 9.0
 */
record Gpu(int index, String name, int computeCapability) {
  /** Returns the compute capability in the form 9.0. */
  String capability() {
    return computeCapability / 10 + "." + computeCapability % 10;
  }
}
