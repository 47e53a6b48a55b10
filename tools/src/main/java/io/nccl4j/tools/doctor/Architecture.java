package io.nccl4j.tools.doctor;

/**
 * The target of one piece of device code.
 *
 * @param number 10 times the major number of the compute capability plus the minor one: 90 for 9.0
 * @param ptx whether it is PTX, which the driver can compile for this and every later GPU;
 *     otherwise it is machine code, which runs on GPUs of the same major number and at least this
 *     minor number
 */
record Architecture(int number, boolean ptx) implements Comparable<Architecture> {
  boolean runsOn(int computeCapability) {
    return ptx
        ? computeCapability >= number
        : computeCapability / 10 == number / 10 && computeCapability >= number;
  }

  @Override
  public int compareTo(Architecture other) {
    return ptx == other.ptx
        ? Integer.compare(number, other.number)
        : Boolean.compare(ptx, other.ptx);
  }

  /** Returns NVIDIA's name, such as {@code sm_90}. */
  @Override
  public String toString() {
    return (ptx ? "compute_" : "sm_") + number;
  }
}
