package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RankSetsTest {
  @ParameterizedTest
  @CsvSource(
      delimiter = ':',
      value = {
        "3: rank 3",
        "0 1: ranks 0, 1",
        "1 2 4 5 6 7: ranks 1, 2, 4-7",
        "0 1 2: ranks 0-2",
        "0 2 3 5 6 7 9: ranks 0, 2, 3, 5-7, 9",
        "8191: rank 8191"
      })
  void consecutiveRanksAreARange(String ranks, String text) {
    BitSet set = new BitSet();
    for (String rank : ranks.split(" ", -1)) {
      set.set(Integer.parseInt(rank));
    }
    assertEquals(text, RankSets.describe(set));
  }

  @ParameterizedTest
  @ValueSource(ints = {2, 3})
  void thousandsOfRanksAreBounded(int step) {
    BitSet set = new BitSet();
    for (int rank = 0; rank < 9000; rank += step) {
      set.set(rank);
    }
    String text = RankSets.describe(set);
    assertTrue(text.startsWith("ranks 0, " + step + ", " + 2 * step + ", "), text);
    assertTrue(text.endsWith(", " + 15 * step + " and " + (9000 / step - 16) + " more"), text);
  }
}
