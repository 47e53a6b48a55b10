package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.plots.Curve.Line;

/** NCCL's protocols, with their names in {@code NCCL_PROTO}. */
enum Protocol {
  SIMPLE("Simple", Line.SOLID),
  LL128("LL128", Line.DASHED),
  LL("LL", Line.DOTTED);

  private final String nccl;
  private final Line line;

  Protocol(String nccl, Line line) {
    this.nccl = nccl;
    this.line = line;
  }

  String nccl() {
    return nccl;
  }

  Line line() {
    return line;
  }
}
