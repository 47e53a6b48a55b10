package io.nccl4j.tools.doctor;

import java.util.Collection;
import java.util.Comparator;
import java.util.Optional;

/** Finds the known name that a misspelt name probably stands for. */
final class Spelling {
  private static final int LETTERS_PER_EDIT = 5;
  private static final int MAX_EDITS = 3;

  private Spelling() {}

  /** Returns the known name closest to a given one, if it is close enough. */
  static Optional<String> nearest(String name, Collection<String> known) {
    int most = Math.clamp(name.length() / LETTERS_PER_EDIT, 1, MAX_EDITS);
    return known.stream()
        .filter(each -> Math.abs(each.length() - name.length()) <= most)
        .filter(each -> distance(name, each) <= most)
        .min(
            Comparator.comparingInt((String each) -> distance(name, each))
                .thenComparing(each -> each));
  }

  /** Returns the number of insertions, deletions, changes and swaps of adjacent letters. */
  static int distance(String one, String other) {
    int[][] cost = new int[one.length() + 1][other.length() + 1];
    for (int i = 0; i <= one.length(); i++) {
      for (int j = 0; j <= other.length(); j++) {
        cost[i][j] = i == 0 || j == 0 ? i + j : cheapest(cost, one, other, i, j);
      }
    }
    return cost[one.length()][other.length()];
  }

  private static int cheapest(int[][] cost, String one, String other, int i, int j) {
    int substitution = one.charAt(i - 1) == other.charAt(j - 1) ? 0 : 1;
    int insertionOrDeletion = Math.min(cost[i - 1][j], cost[i][j - 1]) + 1;
    int best = Math.min(cost[i - 1][j - 1] + substitution, insertionOrDeletion);
    boolean swapped =
        i > 1
            && j > 1
            && one.charAt(i - 1) == other.charAt(j - 2)
            && one.charAt(i - 2) == other.charAt(j - 1);
    return swapped ? Math.min(best, cost[i - 2][j - 2] + 1) : best;
  }
}
