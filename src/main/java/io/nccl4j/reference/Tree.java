package io.nccl4j.reference;

/**
 * One rank's place in a binary tree of all ranks.
 *
 * @param parent the parent, or {@link #NONE} at the root
 * @param firstChild the child that is folded first, or {@link #NONE}
 * @param secondChild the child that is folded second, or {@link #NONE}
 */
record Tree(int parent, int firstChild, int secondChild) {
  static final int NONE = -1;

  /**
   * Returns a rank's place in the first tree: a rank stands as high as its lowest set bit is, with
   * its children half that bit to both sides; rank 0 is the root.
   */
  static Tree first(int rank, int size) {
    int bit = 1;
    while (bit < size && (rank & bit) == 0) {
      bit <<= 1;
    }
    if (rank == 0) {
      return new Tree(NONE, NONE, size > 1 ? bit >> 1 : NONE);
    }
    int parent = (rank ^ bit) | (bit << 1);
    if (parent >= size) {
      parent = rank ^ bit;
    }
    int reach = bit >> 1;
    if (reach == 0) {
      return new Tree(parent, NONE, NONE);
    }
    int second = rank + reach;
    for (int half = reach; second >= size; half >>= 1) {
      second = half == 0 ? NONE : rank + half;
    }
    return new Tree(parent, rank - reach, second);
  }

  /**
   * Returns a rank's place in the second tree, where the leaves of the first are inner nodes: the
   * first one mirrored for an even number of ranks, shifted by one for an odd number.
   */
  static Tree second(int rank, int size) {
    if (size % 2 == 0) {
      Tree mirrored = first(size - 1 - rank, size);
      return new Tree(
          mirror(mirrored.parent, size),
          mirror(mirrored.firstChild, size),
          mirror(mirrored.secondChild, size));
    }
    Tree shifted = first((rank - 1 + size) % size, size);
    return new Tree(
        shift(shifted.parent, size),
        shift(shifted.firstChild, size),
        shift(shifted.secondChild, size));
  }

  private static int mirror(int rank, int size) {
    return rank == NONE ? NONE : size - 1 - rank;
  }

  private static int shift(int rank, int size) {
    return rank == NONE ? NONE : (rank + 1) % size;
  }
}
