package io.nccl4j.tools.perf.sweep;

import java.util.List;
import java.util.Locale;

/** What an algorithm is called, and where there is one. */
enum Algorithm {
  RING("Ring", true),
  TREE("Tree", true),
  DIRECT("", true),
  NVLS("NVLS", false),
  NVLSTREE("NVLSTree", false),
  COLLNETDIRECT("CollnetDirect", false),
  COLLNETCHAIN("CollnetChain", false),
  PAT("PAT", false);

  /** What is swept over on NCCL where nothing else is asked for. */
  static final List<Algorithm> USUAL_NCCL = List.of(RING, TREE, NVLS);

  static final List<Algorithm> USUAL_REFERENCE = List.of(RING, TREE, DIRECT);

  private final String nccl;
  private final boolean reference;

  Algorithm(String nccl, boolean reference) {
    this.nccl = nccl;
    this.reference = reference;
  }

  /** Returns what {@code NCCL_ALGO} calls it, or an empty text where NCCL has no such thing. */
  String nccl() {
    return nccl;
  }

  /** Returns whether a backend can be asked for it. */
  boolean on(String backend) {
    return backend.equals("reference") ? reference : !nccl.isEmpty();
  }

  /** Returns its name on the command line. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}
