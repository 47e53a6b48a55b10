package io.nccl4j.tools.simulate;

/**
 * The bytes of data to send.
 *
 * @param inter the bytes that a node sends to other nodes
 * @param intra the bytes that a rank sends within its node
 */
record Load(long inter, long intra) {
  static final Load NONE = new Load(0, 0);

  Load max(Load other) {
    return new Load(Math.max(inter, other.inter), Math.max(intra, other.intra));
  }
}
