package io.nccl4j;

/**
 * What a backend's devices are. Buffers, streams, events and communicators work together within one
 * platform only.
 */
public enum DeviceType {
  /** NVIDIA GPUs, through the CUDA runtime. */
  CUDA(0),
  /** The host's own processors and memory. */
  HOST(1);

  /** What {@link #deviceKey} returns for no device of any platform. */
  static final int NO_DEVICE = -1;

  private static final int DEVICE_BITS = 24;

  private final int number;

  DeviceType(int number) {
    this.number = number;
  }

  /**
   * Returns platform and device as one number, so that the hot path compares both at once. What is
   * closed is {@link #NO_DEVICE}.
   */
  int deviceKey(int device) {
    return (number << DEVICE_BITS) | (device & ((1 << DEVICE_BITS) - 1));
  }
}
