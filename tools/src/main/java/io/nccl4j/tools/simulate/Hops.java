package io.nccl4j.tools.simulate;

/**
 * How many times data is handed on, one time after the other.
 *
 * @param inter how many times to another node
 * @param intra how many times within a node
 */
record Hops(int inter, int intra) {
  static final Hops NONE = new Hops(0, 0);

  /** Returns one hop more. */
  Hops then(boolean withinNode) {
    return withinNode ? new Hops(inter, intra + 1) : new Hops(inter + 1, intra);
  }

  Hops twice() {
    return new Hops(2 * inter, 2 * intra);
  }
}
