package io.nccl4j.tools.perf.sweep;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.tools.perf.Algorithm;
import io.nccl4j.tools.perf.report.PerfRun;
import io.nccl4j.tools.perf.sweep.SweepResult.State;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The best choice is the quickest with right data, and the automatic one is compared with it. */
class OutcomeTest {
  private static final SweepChoice RING = new SweepChoice(Algorithm.RING, NcclProtocol.SIMPLE);
  private static final SweepChoice TREE = new SweepChoice(Algorithm.TREE, NcclProtocol.LL);

  /** Returns a run with sizes 8, 16 and so on. */
  private static PerfRun run(long wrong, double... micros) {
    return new PerfRun(
        "run",
        "all_reduce",
        false,
        Map.of("ranks", "2 in one process", "backend", "nccl"),
        IntStream.range(0, micros.length)
            .mapToObj(
                i ->
                    new PerfRun.Row(
                        8L << i,
                        "float sum",
                        new PerfRun.Cell(micros[i], 1, wrong, null, micros[i], micros[i], null),
                        null))
            .toList());
  }

  private static SweepResult result(SweepChoice choice, double... micros) {
    return new SweepResult(choice, State.MEASURED, "", List.of(run(0, micros)));
  }

  private static Outcome outcome(SweepResult... results) {
    return new Outcome("all_reduce", "nccl", 1, List.of(results), null);
  }

  @Test
  void bestIsQuickestAndAutoCostsTheDifference() {
    Outcome outcome =
        outcome(result(SweepChoice.AUTO, 12, 9), result(RING, 10, 30), result(TREE, 20, 10));
    assertEquals(List.of(8L, 16L), outcome.sizes());
    assertEquals(RING, outcome.best(8).orElseThrow().choice());
    assertEquals(TREE, outcome.best(16).orElseThrow().choice());
    assertEquals(0.2, outcome.cost(8), 1e-12);
    assertEquals(-0.1, outcome.cost(16), 1e-12);
  }

  @Test
  void wrongDataIsNeverTheBest() {
    SweepResult wrong =
        new SweepResult(RING, State.WRONG, "some data was wrong", List.of(run(4, 1, 1)));
    Outcome outcome = outcome(result(SweepChoice.AUTO, 12, 12), wrong, result(TREE, 20, 10));
    assertEquals(TREE, outcome.best(8).orElseThrow().choice());
    assertTrue(outcome.wrong());
    assertTrue(Double.isNaN(wrong.micros(8)));
  }

  @Test
  void quickestRoundCounts() {
    SweepResult both = result(RING, 10, 30).and(result(RING, 20, 5));
    assertEquals(10, both.micros(8));
    assertEquals(5, both.micros(16));
    assertEquals(State.MEASURED, both.state());
  }

  @Test
  void costWithinTheSpreadMayBeChance() {
    SweepResult auto = result(SweepChoice.AUTO, 12, 12).and(result(SweepChoice.AUTO, 14, 14));
    Outcome outcome = outcome(auto, result(RING, 10, 10).and(result(RING, 11, 13)));
    assertEquals(0.2, outcome.cost(8), 1e-12);
    assertFalse(outcome.costMayBeChance(8));
    assertEquals(0.2, outcome.cost(16), 1e-12);
    assertTrue(outcome.costMayBeChance(16));
    assertFalse(outcome.costMayBeChance(32));
  }

  @Test
  void worseRoundDeterminesState() {
    SweepResult late = new SweepResult(RING, State.FAILED, "late", List.of());
    for (SweepResult both : List.of(result(RING, 10).and(late), late.and(result(RING, 10)))) {
      assertEquals(State.FAILED, both.state());
      assertEquals("late", both.reason());
      assertEquals(10, both.micros(8));
    }
  }

  @Test
  void choiceRefusedAtSomeSizesKeepsTheOthers() {
    SweepResult half = new SweepResult(TREE, State.REFUSED, "none", List.of(run(0, 7)));
    Outcome outcome = outcome(result(SweepChoice.AUTO, 7, 7), result(RING, 9, 9), half);
    assertEquals(TREE, outcome.best(8).orElseThrow().choice());
    assertEquals(RING, outcome.best(16).orElseThrow().choice());
    assertEquals("n/a", half.missing());
    assertTrue(outcome.measuredAnything());
    assertFalse(outcome.wrong());
  }

  @Test
  void emptyOutcomeHasNoBest() {
    Outcome outcome = outcome(new SweepResult(SweepChoice.AUTO, State.FAILED, "late", List.of()));
    assertFalse(outcome.measuredAnything());
    assertTrue(outcome.best(8).isEmpty());
    assertTrue(Double.isNaN(outcome.cost(8)));
  }
}
