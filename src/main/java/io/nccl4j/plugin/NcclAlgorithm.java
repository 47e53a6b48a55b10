package io.nccl4j.plugin;

import org.jspecify.annotations.NullMarked;

/** The algorithms of NCCL. */
@NullMarked
public enum NcclAlgorithm {
  /** Reduces up a tree and broadcasts down it; two trees, each with half of the data. */
  TREE(0),
  /** Passes data around a ring. */
  RING(1),
  /** Reduces in the network's switches, each GPU directly. */
  COLLNET_DIRECT(2),
  /** Reduces in the network's switches, after a chain of the GPUs of a host. */
  COLLNET_CHAIN(3),
  /** Reduces in the NVLink switches. */
  NVLS(4),
  /** Reduces in the NVLink switches of each host, and over a tree of hosts. */
  NVLS_TREE(5),
  /** Parallel aggregated trees, for all-gather and reduce-scatter. */
  PAT(6);

  private final int code;

  NcclAlgorithm(int code) {
    this.code = code;
  }

  /** Returns NCCL's number. */
  int code() {
    return code;
  }
}
