package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Operation;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.ras.RasStatus;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.CallCount;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

/**
 * What follows from the counts and the states of a communicator's ranks, for rank 0, whose device
 * has not completed an all-reduce.
 */
class RasQueryTest {
  private static final String UNCOUNTED =
      "NCCL counts neither sends and receives nor captured operations, so it does not tell which rank is late";

  private final List<RasStatus.Rank> ranks = new ArrayList<>();
  private final List<RasStatus.MissingRank> missing = new ArrayList<>();
  private int size;
  private boolean complete = true;

  private void calls(int rank, long allReduces, long broadcasts) {
    rank(rank, 0, false, false, allReduces, broadcasts);
  }

  private void rank(
      int rank, int error, boolean closing, boolean aborting, long allReduces, long broadcasts) {
    ranks.add(
        new RasStatus.Rank(
            rank,
            "h" + rank / 2,
            100 + rank / 2,
            0,
            0,
            0,
            error,
            false,
            closing,
            aborting,
            Map.of("AllReduce", allReduces, "Broadcast", broadcasts, "ReduceScatter", 0L)));
    size++;
  }

  private void missing(int rank, boolean unresponsive, boolean dead) {
    missing.add(new RasStatus.MissingRank(rank, "b", 7, 0, 0, unresponsive, dead));
    size++;
  }

  private void assertDescribed(String text, Set<Integer> behind, Set<Integer> failed) {
    assertDescribed(Operation.ALL_REDUCE, 0, text, behind, failed);
  }

  private void assertDescribed(
      Operation operation, long later, String text, Set<Integer> behind, Set<Integer> failed) {
    Awaited awaited = described(operation, new CallCount(1000, later, 0));
    assertEquals(text, awaited.text());
    assertEquals(RankSets.of(behind), awaited.ranks());
    assertEquals(RankSets.of(failed), awaited.failed());
  }

  private Awaited described(CallCount own) {
    return described(Operation.ALL_REDUCE, own);
  }

  private Awaited described(Operation operation, CallCount own) {
    return new RasQuery(0, operation, null)
        .describe(new RasStatus.Communicator(1, "", size, ranks, missing), complete, own);
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

  /** Ranks 1 and 3 have called the operation, and wait in it as this rank does. */
  @Test
  void ranksThatHaveCalledTheOperationAreNotBehind() {
    calls(0, 700, 3);
    calls(1, 641, 2);
    calls(2, 640, 3);
    calls(3, 720, 3);
    assertDescribed(
        Operation.ALL_REDUCE,
        59,
        "all-reduce 641: rank 2 has called 640 (host h1, process 101)",
        Set.of(2),
        Set.of());
  }

  /** NCCL counts a call before it returns, and it may wait for the device in between. */
  @Test
  void laterCallThatHasNotReturnedMayBeCounted() {
    calls(0, 6, 0);
    calls(1, 5, 0);
    calls(2, 4, 0);
    Awaited awaited = described(new CallCount(5, 0, 1));
    assertEquals(RankSets.of(Set.of(2)), awaited.ranks());
  }

  /** Two of three calls are not counted; of the two that are, one has not returned. */
  @Test
  void callsThatAreNotCountedBlameNobodyElse() {
    calls(0, 2, 0);
    calls(1, 1, 0);
    calls(2, 0, 0);
    assertEquals(RankSets.of(Set.of(2)), described(new CallCount(3, 0, 1)).ranks());
  }

  /** As those of a graph with kernel times, or of other code. */
  @Test
  void callsThatOnlyNcclCountsNameNobody() {
    calls(0, 15, 0);
    calls(1, 4, 0);
    Awaited awaited = described(new CallCount(5, 0, 0));
    assertEquals(RankSets.of(Set.of()), awaited.ranks());
    assertEquals(
        "NCCL has counted calls of all-reduce that nccl4j has not, so it does not tell which rank is late",
        awaited.text());
  }

  @Test
  void callThatHasNotReturnedIsComparedOnceItIsCounted() {
    calls(0, 6, 0);
    calls(1, 5, 0);
    assertEquals(RankSets.of(Set.of(1)), described(new CallCount(6, -1, 0)).ranks());
    assertEquals(
        "NCCL has not counted this all-reduce, so it does not tell which rank is late",
        described(new CallCount(7, -1, 0)).text());
  }

  @Test
  void otherKindsAreNotCompared() {
    calls(0, 5, 2);
    calls(1, 5, 1);
    assertDescribed(
        "all ranks have called all-reduce 5, so NCCL does not tell which rank is late",
        Set.of(),
        Set.of());
    assertDescribed(
        Operation.BROADCAST,
        0,
        "broadcast 2: rank 1 has called 1 (host h0, process 100)",
        Set.of(1),
        Set.of());
  }

  @Test
  void eachCountIsNamed() {
    calls(0, 2, 1);
    calls(1, 1, 0);
    calls(2, 0, 0);
    assertDescribed(
        "all-reduce 2: rank 2 has called none (host h1, process 101); all-reduce 2: rank 1 has called 1 (host h0, process 100)",
        Set.of(1, 2),
        Set.of());
  }

  @Test
  void manyCountsAreSummarized() {
    calls(0, 1000, 0);
    Set<Integer> behind = new TreeSet<>();
    for (int rank = 1; rank < 500; rank++) {
      calls(rank, rank, 0);
      behind.add(rank);
    }
    Awaited awaited = described(new CallCount(1000, 0, 0));
    assertEquals(RankSets.of(behind), awaited.ranks());
    assertTrue(
        awaited
            .text()
            .endsWith(
                "; all-reduce 1000: ranks 5-499 have called fewer (host h10, process 110; host h100, process 200; host h101, process 201; host h102, process 202, and more)"),
        awaited::text);
    assertTrue(awaited.text().length() < 600, awaited::text);
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

  /** NCCL has not yet gone around a silent process, and ranks behind it seem to be silent. */
  @Test
  void silentRanksOfAnIncompleteAnswerHaveNotFailed() {
    complete = false;
    calls(0, 1, 0);
    missing(1, true, true);
    missing(2, true, false);
    assertDescribed(
        "rank 1 is considered dead (host b, process 7); rank 2 does not answer (host b, process 7); not all processes have answered NCCL yet",
        Set.of(),
        Set.of(1));
  }

  /** RAS may be turned off in their processes: NCCL then lists them so, or not at all. */
  @Test
  void ranksThatRasDoesNotKnowHaveNotFailed() {
    calls(0, 1, 0);
    missing.add(new RasStatus.MissingRank(1, "unknown", -1, 0, 0, true, false));
    size = 4;
    assertDescribed("ranks 1-3 are not known to NCCL's RAS service", Set.of(), Set.of());
  }

  @Test
  void errorsAndEndsOfOtherRanksAreNamed() {
    rank(0, 3, false, false, 1, 0);
    rank(1, 2, false, false, 1, 0);
    rank(2, 6, false, false, 1, 0);
    rank(3, 0, true, false, 1, 0);
    rank(4, 0, true, true, 1, 0);
    rank(5, 7, false, false, 1, 0);
    assertDescribed(
        "rank 1 reports SYSTEM_ERROR (host h0, process 100); rank 3 reports a close (host h1, process 101); rank 4 reports an abort (host h2, process 102)",
        Set.of(),
        Set.of());
  }

  /** The others wait for this rank, or go on without waiting. */
  @Test
  void ranksAheadNameNobody() {
    calls(0, 1, 0);
    calls(1, 2, 1);
    assertDescribed(
        "all ranks have called all-reduce 1, so NCCL does not tell which rank is late",
        Set.of(),
        Set.of());
  }

  @Test
  void operationsThatNcclDoesNotCountNameNobody() {
    calls(0, 3, 0);
    calls(1, 1, 0);
    assertDescribed(null, 0, UNCOUNTED, Set.of(), Set.of());
    assertDescribed(
        Operation.ALL_TO_ALL,
        0,
        "NCCL has not counted this all-to-all, so it does not tell which rank is late",
        Set.of(),
        Set.of());
    assertDescribed(
        Operation.ALL_REDUCE,
        3,
        "NCCL has not counted this all-reduce, so it does not tell which rank is late",
        Set.of(),
        Set.of());
  }

  @Test
  void ranksThatCallOtherCollectivesAreNotMissing() {
    calls(0, 2, 0);
    calls(1, 1, 1);
    calls(2, 1, 0);
    assertDescribed(
        "all-reduce 2: rank 2 has called 1 (host h1, process 101); all-reduce 2: rank 1 has called other collectives (host h0, process 100)",
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
        "all-reduce 1: ranks 2-13 have called none (host h1, process 101; host h2, process 102; host h3, process 103; host h4, process 104, and more)",
        Set.of(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
        Set.of());
  }
}
