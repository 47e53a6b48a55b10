package io.nccl4j.schedule;

import java.util.List;

/**
 * One of the two trees over which an all-reduce goes up, folding, and down again.
 *
 * <p>Nodes form a binary tree: a node stands as high as the lowest set bit of its number is, with
 * its children half that bit to both sides, and node 0 is the root. The second tree is the first
 * one mirrored for an even number of nodes, or shifted by one for an odd number, so that the leaves
 * of one are inner nodes of the other. The ranks of a node form a chain, whose first rank speaks to
 * the parent node.
 *
 * <p>A rank has up to three children. It folds its own data onto the first one's, then the result
 * onto the next one's: the next rank of its chain, then the first child node, then the second.
 */
public final class Tree {
  /** Stands for no rank. */
  public static final int NONE = -1;

  private final int ranks;
  private final int ranksPerNode;
  private final int nodes;
  private final boolean second;
  private final TreePattern pattern;
  private final Permutation order;

  private Tree(
      int ranks, int ranksPerNode, TreePattern pattern, boolean second, Permutation order) {
    this.ranks = ranks;
    this.ranksPerNode = ranksPerNode;
    this.nodes = Math.ceilDiv(ranks, ranksPerNode);
    this.pattern = pattern;
    this.second = second;
    this.order = order;
  }

  /**
   * {@return a tree in which every rank is a node}
   *
   * @param ranks the number of ranks; 1 or more
   * @param second whether it is the second tree
   * @throws IllegalArgumentException if there are no ranks
   */
  public static Tree ofRanks(int ranks, boolean second) {
    return new Tree(ranks, 1, TreePattern.TREE, second, Permutation.inOrder(ranks));
  }

  /** Returns a tree of nodes, with the ranks where an order of all of them puts them. */
  static Tree ofNodes(
      int ranks, int ranksPerNode, TreePattern pattern, boolean second, List<Integer> order) {
    Permutation places = order.isEmpty() ? Permutation.inOrder(ranks) : Permutation.of(order, 0);
    return new Tree(ranks, Math.min(ranks, ranksPerNode), pattern, second, places);
  }

  /** {@return the number of ranks} */
  public int size() {
    return ranks;
  }

  /** {@return the rank that has the result first} */
  public int root() {
    return rankAt(second ? secondRoot() : 0, 0);
  }

  private int secondRoot() {
    return nodes % 2 == 0 ? nodes - 1 : 1 % nodes;
  }

  /**
   * {@return the rank that a rank sends its partial result to, or {@link #NONE} at the root}
   *
   * @param rank the rank
   */
  public int parent(int rank) {
    int place = order.place(rank);
    int node = place / ranksPerNode;
    int inChain = place % ranksPerNode;
    if (inChain > 0) {
      return rankAt(node, inChain - 1);
    }
    int inFirst = fromTree(node);
    int above = parentNode(inFirst);
    if (above == NONE) {
      return NONE;
    }
    int aboveNode = toTree(above);
    return rankAt(aboveNode, pattern.place(inFirst < above, nodeSize(aboveNode)));
  }

  /**
   * {@return a child of a rank, or {@link #NONE} if it has not so many}
   *
   * @param rank the rank
   * @param index which of its children, from 0, in the order in which they are folded
   */
  public int child(int rank, int index) {
    int place = order.place(rank);
    int node = place / ranksPerNode;
    int inChain = place % ranksPerNode;
    int size = nodeSize(node);
    int left = index;
    if (inChain + 1 < size && left-- == 0) {
      return rankAt(node, inChain + 1);
    }
    int first = firstChildNode(fromTree(node));
    if (first != NONE && inChain == pattern.place(true, size) && left-- == 0) {
      return rankAt(toTree(first), 0);
    }
    int last = secondChildNode(fromTree(node));
    if (last != NONE && inChain == pattern.place(false, size) && left == 0) {
      return rankAt(toTree(last), 0);
    }
    return NONE;
  }

  /**
   * {@return how many children a rank has, from 0 to 3}
   *
   * @param rank the rank
   */
  public int children(int rank) {
    int count = 0;
    while (child(rank, count) != NONE) {
      count++;
    }
    return count;
  }

  /**
   * {@return how many ranks are above a rank}
   *
   * @param rank the rank
   */
  public int depth(int rank) {
    int place = order.place(rank);
    int depth = place % ranksPerNode;
    int node = fromTree(place / ranksPerNode);
    while (node != 0) {
      int above = parentNode(node);
      depth += 1 + pattern.place(node < above, nodeSize(toTree(above)));
      node = above;
    }
    return depth;
  }

  private int rankAt(int node, int inChain) {
    return order.rank(node * ranksPerNode + inChain);
  }

  private int nodeSize(int node) {
    return Math.min(ranksPerNode, ranks - node * ranksPerNode);
  }

  /** Returns the number that a node of this tree has in the first one. */
  private int fromTree(int node) {
    if (!second) {
      return node;
    }
    return nodes % 2 == 0 ? nodes - 1 - node : (node + nodes - 1) % nodes;
  }

  private int toTree(int node) {
    if (!second) {
      return node;
    }
    return nodes % 2 == 0 ? nodes - 1 - node : (node + 1) % nodes;
  }

  private int parentNode(int node) {
    if (node == 0) {
      return NONE;
    }
    int bit = Integer.lowestOneBit(node);
    int above = (node ^ bit) | (bit << 1);
    return above < nodes ? above : node ^ bit;
  }

  private int firstChildNode(int node) {
    int half = Integer.lowestOneBit(node) >> 1;
    return half == 0 ? NONE : node - half;
  }

  private int secondChildNode(int node) {
    // The root has one child, at the highest power of two.
    int half = node == 0 ? Integer.highestOneBit(nodes - 1) : Integer.lowestOneBit(node) >> 1;
    while (half > 0 && node + half >= nodes) {
      half >>= 1;
    }
    return half == 0 ? NONE : node + half;
  }
}
