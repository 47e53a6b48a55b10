package io.nccl4j.tools.simulate;

/**
 * What has to be sent, in bytes of data.
 *
 * @param inter what leaves a node for others
 * @param intra what a rank sends within its node
 */
record Load(long inter, long intra) {
  static final Load NONE = new Load(0, 0);

  Load max(Load other) {
    return new Load(Math.max(inter, other.inter), Math.max(intra, other.intra));
  }
}
