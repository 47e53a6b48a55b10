package io.nccl4j.tools.perf.sweep;

import java.util.List;
import java.util.Locale;

/** The algorithms, their names, and the backends that have them. */
enum Algorithm {
  RING("Ring", true),
  TREE("Tree", true),
  DIRECT("", true),
  NVLS("NVLS", false),
  NVLSTREE("NVLSTree", false),
  COLLNETDIRECT("CollnetDirect", false),
  COLLNETCHAIN("CollnetChain", false),
  PAT("PAT", false);

  /** The algorithms swept by default on NCCL. */
  static final List<Algorithm> DEFAULT_NCCL = List.of(RING, TREE, NVLS);

  /** The algorithms swept by default on the reference backend. */
  static final List<Algorithm> DEFAULT_REFERENCE = List.of(RING, TREE, DIRECT);

  private final String nccl;
  private final boolean reference;

  Algorithm(String nccl, boolean reference) {
    this.nccl = nccl;
    this.reference = reference;
  }

  /** Returns its name in {@code NCCL_ALGO}, or an empty string if NCCL does not have it. */
  String nccl() {
    return nccl;
  }

  /** Returns whether a backend has it. */
  boolean on(String backend) {
    return backend.equals("reference") ? reference : !nccl.isEmpty();
  }

  /** Returns its name on the command line. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}
