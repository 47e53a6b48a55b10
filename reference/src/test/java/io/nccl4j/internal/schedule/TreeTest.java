package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.TreePattern;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TreeTest {
  @Test
  void firstTreeOfFourteenRanksMatchesNcclsComment() {
    // 0-------------8
    //        ______/ \______
    //       4               12
    //     /   \            /  \
    //    2     6         10     .
    //   / \   / \       /  \     \
    //  1   3 5   7     9   11    13
    Tree tree = Tree.of(Layout.defaults(), 0, 14);
    assertEquals(0, tree.root());
    assertEquals(List.of(8), children(tree, 0));
    assertEquals(List.of(4, 12), children(tree, 8));
    assertEquals(List.of(2, 6), children(tree, 4));
    assertEquals(List.of(10, 13), children(tree, 12));
    assertEquals(List.of(9, 11), children(tree, 10));
    assertEquals(List.of(1, 3), children(tree, 2));
    assertEquals(List.of(5, 7), children(tree, 6));
    assertEquals(List.of(), children(tree, 13));
    assertEquals(12, tree.parent(13));
    assertEquals(4, tree.depth(11));
  }

  @Test
  void secondTreeIsMirroredForEvenRanks() {
    //  3----------------11
    //   \______
    //   /      \
    //  1        7
    // / \      / \
    // 0  2    5   9
    Tree tree = Tree.of(Layout.defaults(), 1, 12);
    assertEquals(11, tree.root());
    assertEquals(List.of(3), children(tree, 11));
    assertEquals(List.of(7, 1), children(tree, 3));
    assertEquals(List.of(9, 5), children(tree, 7));
    assertEquals(List.of(2, 0), children(tree, 1));
    assertEquals(List.of(10, 8), children(tree, 9));
    assertEquals(List.of(6, 4), children(tree, 5));
  }

  @Test
  void secondTreeIsShiftedForOddRanks() {
    Tree tree = Tree.of(Layout.defaults(), 1, 13);
    assertEquals(1, tree.root());
    assertEquals(List.of(9), children(tree, 1));
    assertEquals(List.of(5, 0), children(tree, 9));
    assertEquals(List.of(11), children(tree, 0));
    assertEquals(List.of(10, 12), children(tree, 11));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 64, 100})
  void bothTreesContainEveryRankOnce(int ranks) {
    for (int ranksPerNode : new int[] {1, 2, 3, 4, 8, 100}) {
      for (TreePattern pattern : TreePattern.values()) {
        Layout layout = Layout.defaults().withNodes(ranksPerNode, pattern);
        assertSpans(Tree.of(layout, 0, ranks));
        assertSpans(Tree.of(layout, 1, ranks));
      }
    }
  }

  private static void assertSpans(Tree tree) {
    BitSet reached = new BitSet();
    List<Integer> open = new ArrayList<>(List.of(tree.root()));
    assertEquals(Tree.NONE, tree.parent(tree.root()));
    assertEquals(0, tree.depth(tree.root()));
    while (!open.isEmpty()) {
      int rank = open.removeLast();
      assertTrue(!reached.get(rank), "rank " + rank + " was reached twice");
      reached.set(rank);
      for (int child : children(tree, rank)) {
        assertEquals(rank, tree.parent(child), "parent of " + child);
        assertEquals(tree.depth(rank) + 1, tree.depth(child), "depth of " + child);
        open.add(child);
      }
    }
    assertEquals(tree.size(), reached.cardinality());
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4, 6, 8, 14, 16, 32, 64})
  void noRankOfEvenNumberIsInnerNodeOfBothTrees(int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
      boolean inFirst = Tree.of(Layout.defaults(), 0, ranks).children(rank) > 0;
      boolean inSecond = Tree.of(Layout.defaults(), 1, ranks).children(rank) > 0;
      assertTrue(!inFirst || !inSecond, "rank " + rank);
    }
  }

  @Test
  void singleNodeIsAChain() {
    Tree tree = Tree.of(Layout.defaults().withNodes(4, TreePattern.BALANCED_TREE), 1, 4);
    assertEquals(0, tree.root());
    assertEquals(List.of(1), children(tree, 0));
    assertEquals(List.of(2), children(tree, 1));
    assertEquals(List.of(3), children(tree, 2));
    assertEquals(List.of(), children(tree, 3));
  }

  // Three nodes of two ranks: node 2 is a child of node 0 and the parent of node 1.
  @ParameterizedTest
  @CsvSource({
    "TREE,          1 4, '',  3,   '',  5 2, ''",
    "BALANCED_TREE, 1 4, '',  3,   '',  5,   2",
    "SPLIT_TREE,    1,   4,   3,   '',  5,   2"
  })
  void patternDeterminesRanksConnectedToChildNodes(
      TreePattern pattern, String of0, String of1, String of2, String of3, String of4, String of5) {
    Tree tree = Tree.of(Layout.defaults().withNodes(2, pattern), 0, 6);
    String[] expected = {of0, of1, of2, of3, of4, of5};
    for (int rank = 0; rank < 6; rank++) {
      String found = String.join(" ", children(tree, rank).stream().map(String::valueOf).toList());
      assertEquals(expected[rank], found, "children of " + rank);
    }
  }

  @Test
  void orderDeterminesPositions() {
    Layout layout =
        Layout.defaults()
            .withNodes(2, TreePattern.TREE)
            .withTreeOrders(List.of(List.of(5, 1, 3, 0, 2, 4)));
    Tree tree = Tree.of(layout, 0, 6);
    assertEquals(5, tree.root());
    assertEquals(List.of(1, 2), children(tree, 5));
    assertEquals(List.of(4, 3), children(tree, 2));
    assertEquals(List.of(0), children(tree, 3));
  }

  private static List<Integer> children(Tree tree, int rank) {
    return IntStream.range(0, tree.children(rank)).map(i -> tree.child(rank, i)).boxed().toList();
  }
}
