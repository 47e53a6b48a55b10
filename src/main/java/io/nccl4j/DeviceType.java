package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * The type of a backend's devices. Buffers, streams, events and communicators can be used together
 * only if they have the same device type.
 */
@NullMarked
public enum DeviceType {
  /** NVIDIA GPUs, through the CUDA runtime. */
  CUDA(0),
  /** The host's own processors and memory. */
  HOST(1);

  /** A device key that no device has; the key of a closed object. */
  static final int NO_DEVICE = -1;

  private static final int DEVICE_BITS = 24;

  private final int number;

  DeviceType(int number) {
    this.number = number;
  }

  /**
   * Returns the device type and the device index as one number, which the hot path compares at
   * once.
   */
  int deviceKey(int device) {
    return (number << DEVICE_BITS) | (device & ((1 << DEVICE_BITS) - 1));
  }
}
