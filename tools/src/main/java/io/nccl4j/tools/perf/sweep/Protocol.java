package io.nccl4j.tools.perf.sweep;

/** NCCL's protocols, with their names in {@code NCCL_PROTO}. */
enum Protocol {
  SIMPLE("Simple"),
  LL128("LL128"),
  LL("LL");

  private final String nccl;

  Protocol(String nccl) {
    this.nccl = nccl;
  }

  String nccl() {
    return nccl;
  }
}
