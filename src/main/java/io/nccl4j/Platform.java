package io.nccl4j;

/**
 * What a backend's devices are. Buffers, streams, events and communicators work together within one
 * platform only.
 */
public enum Platform {
  /** NVIDIA GPUs, through the CUDA runtime. */
  CUDA,
  /** The host's own processors and memory. */
  HOST
}
