package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.TreePattern;
import java.util.List;
import org.jspecify.annotations.NullMarked;

/**
 * One of the two trees of an all-reduce, which reduces up the tree and broadcasts down.
 *
 * <p>Nodes form a binary tree. The lowest set bit of a node's number determines its height; its
 * children are half that bit below and above it. Node 0 is the root. The second tree is the first
 * one mirrored for an even number of nodes, or shifted by one for an odd number, so that the leaves
 * of one are inner nodes of the other. The ranks of a node form a chain, whose first rank is
 * connected to the parent node.
 *
 * <p>A rank has up to three children: the next rank of its chain, then the first child node, then
 * the second. It folds its own data with theirs in this order.
 */
@NullMarked
public final class Tree {
  /** No rank. */
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
   * {@return the tree of a channel}
   *
   * @param layout the layout, with its nodes and the orders of its trees
   * @param channel the channel, from 0
   * @param ranks the number of ranks; 1 or more
   */
  public static Tree of(Layout layout, int channel, int ranks) {
    List<Integer> order = Permutation.order(layout.treeOrders(), channel, ranks);
    return new Tree(
        ranks,
        Math.min(ranks, layout.ranksPerNode()),
        layout.nodePattern(),
        !layout.firstTree(channel),
        order.isEmpty() ? Permutation.inOrder(ranks) : Permutation.of(order, 0));
  }

  /** {@return the number of ranks} */
  public int size() {
    return ranks;
  }

  /** {@return the root, the rank that obtains the result first} */
  public int root() {
    return rankAt(second ? secondRoot() : 0, 0);
  }

  private int secondRoot() {
    return nodes % 2 == 0 ? nodes - 1 : 1 % nodes;
  }

  /**
   * {@return the parent of a rank, to which it sends its partial result, or {@link #NONE} for the
   * root}
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
    return rankAt(aboveNode, childPlace(inFirst < above, nodeSize(aboveNode)));
  }

  /**
   * {@return a child of a rank, or {@link #NONE} if there is no child with this index}
   *
   * @param rank the rank
   * @param index the index of the child, from 0, in folding order
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
    if (first != NONE && inChain == childPlace(true, size) && left-- == 0) {
      return rankAt(toTree(first), 0);
    }
    int last = secondChildNode(fromTree(node));
    if (last != NONE && inChain == childPlace(false, size) && left == 0) {
      return rankAt(toTree(last), 0);
    }
    return NONE;
  }

  /**
   * {@return the number of children of a rank, from 0 to 3}
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
   * {@return the depth of a rank: the number of ranks above it}
   *
   * @param rank the rank
   */
  public int depth(int rank) {
    int place = order.place(rank);
    int depth = place % ranksPerNode;
    int node = fromTree(place / ranksPerNode);
    while (node != 0) {
      int above = parentNode(node);
      depth += 1 + childPlace(node < above, nodeSize(toTree(above)));
      node = above;
    }
    return depth;
  }

  /** Returns the position in the chain of the rank that is connected to a child node. */
  private int childPlace(boolean firstChild, int nodeSize) {
    int place =
        switch (pattern) {
          case TREE -> 0;
          case BALANCED_TREE -> firstChild ? 1 : 0;
          case SPLIT_TREE -> 1;
        };
    return Math.min(place, nodeSize - 1);
  }

  private int rankAt(int node, int inChain) {
    return order.rank(node * ranksPerNode + inChain);
  }

  private int nodeSize(int node) {
    return Math.min(ranksPerNode, ranks - node * ranksPerNode);
  }

  /** Returns the number of a node of this tree in the first tree. */
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
