package io.nccl4j.tools.simulate;

/**
 * The consecutive hops of a path.
 *
 * @param inter the number of hops to another node
 * @param intra the number of hops within a node
 */
record Hops(int inter, int intra) {
  static final Hops NONE = new Hops(0, 0);

  /** Returns this path with one more hop. */
  Hops then(boolean withinNode) {
    return withinNode ? new Hops(inter, intra + 1) : new Hops(inter + 1, intra);
  }

  Hops twice() {
    return new Hops(2 * inter, 2 * intra);
  }
}
