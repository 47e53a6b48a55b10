package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.internal.util.RankSets;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.spi.Awaited;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** What follows from the counts and the states of a communicator's ranks, for rank 0. */
class RasQueryTest {
  private static final String UNKNOWN =
      ", so NCCL does not tell which rank is late; it counts neither sends and receives nor captured operations";

  private final List<RasStatus.Rank> ranks = new ArrayList<>();
  private final List<RasStatus.MissingRank> missing = new ArrayList<>();

  private void calls(int rank, long allReduces, long broadcasts) {
    ranks.add(
        new RasStatus.Rank(
            rank,
            "h" + rank / 2,
            100 + rank / 2,
            0,
            0,
            0,
            0,
            false,
            false,
            false,
            Map.of("AllReduce", allReduces, "Broadcast", broadcasts, "ReduceScatter", 0L)));
  }

  private void missing(int rank, boolean unresponsive, boolean dead) {
    missing.add(new RasStatus.MissingRank(rank, "b", 7, 0, 0, unresponsive, dead));
  }

  private void assertDescribed(String text, Set<Integer> behind, Set<Integer> failed) {
    Awaited awaited =
        RasQuery.describe(
            new RasStatus.Communicator(1, "", ranks.size() + missing.size(), ranks, missing), 0);
    assertEquals(text, awaited.text());
    assertEquals(RankSets.of(behind), awaited.ranks());
    assertEquals(RankSets.of(failed), awaited.failed());
  }

  @Test
  void ranksBehindAreNamedWithTheirProcesses() {
    calls(0, 641, 3);
    calls(1, 640, 3);
    calls(2, 640, 3);
    calls(3, 641, 3);
    missing(4, true, false);
    assertDescribed(
        "rank 4 does not answer (host b, process 7); all-reduce 641: ranks 1, 2 have called 640 (host h0, process 100; host h1, process 101)",
        Set.of(1, 2),
        Set.of(4));
  }

  @Test
  void eachCountIsNamed() {
    calls(0, 2, 1);
    calls(1, 1, 0);
    calls(2, 0, 0);
    assertDescribed(
        "all-reduce 2: rank 2 has called none (host h1, process 101); all-reduce 2: rank 1 has called 1 (host h0, process 100); broadcast 1: ranks 1, 2 have called none (host h0, process 100; host h1, process 101)",
        Set.of(1, 2),
        Set.of());
  }

  @Test
  void eachStateOfMissingRanksIsNamed() {
    calls(0, 1, 0);
    missing(1, true, true);
    missing(2, true, false);
    missing(3, false, false);
    missing(4, true, false);
    assertDescribed(
        "rank 1 is considered dead (host b, process 7); ranks 2, 4 do not answer (host b, process 7); rank 3 has left the communicator (host b, process 7)",
        Set.of(),
        Set.of(1, 2, 3, 4));
  }

  @Test
  void equalCountsNameNobody() {
    calls(0, 1, 1);
    calls(1, 1, 1);
    assertDescribed("all ranks have called the same collectives" + UNKNOWN, Set.of(), Set.of());
  }

  /** The others wait for this rank, or go on without waiting. */
  @Test
  void ranksAheadNameNobody() {
    calls(0, 1, 0);
    calls(1, 2, 0);
    assertDescribed(
        "no rank has called fewer collectives than this one" + UNKNOWN, Set.of(), Set.of());
  }

  @Test
  void ranksThatCallOtherCollectivesAreNotMissing() {
    calls(0, 2, 0);
    calls(1, 1, 1);
    calls(2, 1, 0);
    assertDescribed(
        "all-reduce 2: ranks 1, 2 have called 1 (host h0, process 100; host h1, process 101); rank 1 called other collectives than this rank",
        Set.of(2),
        Set.of());
  }

  @Test
  void onlyTheFirstProcessesAreNamed() {
    calls(0, 1, 0);
    for (int rank = 2; rank < 14; rank++) {
      calls(rank, 0, 0);
    }
    calls(1, 1, 0);
    assertDescribed(
        "all-reduce 1: ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13 have called none (host h1, process 101; host h2, process 102; host h3, process 103; host h4, process 104, and more)",
        Set.of(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
        Set.of());
  }
}
