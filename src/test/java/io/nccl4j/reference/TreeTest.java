package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class TreeTest {
  @Test
  void theFirstTreeOfFourteenRanksIsTheOneInNcclsComments() {
    // 0-------------8
    //        ______/ \______
    //       4               12
    //     /   \            /  \
    //    2     6         10     .
    //   / \   / \       /  \     \
    //  1   3 5   7     9   11    13
    assertEquals(new Tree(Tree.NONE, Tree.NONE, 8), Tree.first(0, 14));
    assertEquals(new Tree(0, 4, 12), Tree.first(8, 14));
    assertEquals(new Tree(8, 2, 6), Tree.first(4, 14));
    assertEquals(new Tree(8, 10, 13), Tree.first(12, 14));
    assertEquals(new Tree(12, 9, 11), Tree.first(10, 14));
    assertEquals(new Tree(12, Tree.NONE, Tree.NONE), Tree.first(13, 14));
    assertEquals(new Tree(6, Tree.NONE, Tree.NONE), Tree.first(7, 14));
  }

  @Test
  void theSecondTreeIsMirroredForEvenAndShiftedForOddNumbers() {
    assertEquals(new Tree(Tree.NONE, Tree.NONE, 5), Tree.second(13, 14));
    assertEquals(new Tree(13, 9, 1), Tree.second(5, 14));
    assertEquals(new Tree(Tree.NONE, Tree.NONE, 5), Tree.second(1, 7));
    assertEquals(new Tree(1, 3, 0), Tree.second(5, 7));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 64, 100})
  void bothTreesHoldEveryRankOnce(int size) {
    assertSpans(size, rank -> Tree.first(rank, size));
    assertSpans(size, rank -> Tree.second(rank, size));
  }

  private static void assertSpans(int size, IntFunction<Tree> place) {
    BitSet reached = new BitSet();
    List<Integer> open = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      if (place.apply(rank).parent() == Tree.NONE) {
        open.add(rank);
      }
    }
    assertEquals(1, open.size(), "roots");
    while (!open.isEmpty()) {
      int rank = open.removeLast();
      assertTrue(!reached.get(rank), "rank " + rank + " was reached twice");
      reached.set(rank);
      for (int child : List.of(place.apply(rank).firstChild(), place.apply(rank).secondChild())) {
        if (child != Tree.NONE) {
          assertEquals(rank, place.apply(child).parent(), "parent of " + child);
          open.add(child);
        }
      }
    }
    assertEquals(size, reached.cardinality());
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 4, 6, 8, 14, 16, 32, 64})
  void noRankIsAnInnerNodeOfBothTreesWhereTheirNumberIsEven(int size) {
    for (int rank = 0; rank < size; rank++) {
      assertTrue(leaf(Tree.first(rank, size)) || leaf(Tree.second(rank, size)), "rank " + rank);
    }
  }

  private static boolean leaf(Tree place) {
    return place.firstChild() == Tree.NONE && place.secondChild() == Tree.NONE;
  }
}
