package io.nccl4j.internal.schedule;

import io.nccl4j.internal.schedule.PlannedCollectives.Call;
import io.nccl4j.internal.schedule.PlannedCollectives.Run;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Compares the plans of {@link PlannedCollectives} with predicted ones. The lines of a rank are in
 * the order of its collectives; those of different ranks are mixed.
 */
final class PlanComparison {
  private static final int MAX_NOTES = 10;

  /** What is compared of one line, as text. */
  interface Prediction {
    /** Returns the predicted decision for a call of the run with that number. */
    String of(int number, Run run, Call call, PlanLine line);

    /** Returns the planner's decision in the same form. */
    String of(PlanLine line);
  }

  /** Where a rank's lines have arrived at. */
  private static final class Position {
    int run;
    int call;
    long elements;
    final BitSet seen = new BitSet();
  }

  private final List<Run> runs;
  private final Prediction prediction;
  private final List<Position> positions = new ArrayList<>();
  private final List<String> notes = new ArrayList<>();
  private long collectives;
  private long lines;
  private long different;

  PlanComparison(List<Run> runs, Prediction prediction) {
    this.runs = runs;
    this.prediction = prediction;
    int ranks = runs.stream().mapToInt(Run::ranks).max().orElse(0);
    IntStream.range(0, ranks).forEach(_ -> positions.add(new Position()));
  }

  void accept(String text) {
    PlanLine line = PlanLine.parse(text);
    Position at = positions.get(line.rank());
    while (at.run < runs.size() && runs.get(at.run).ranks() <= line.rank()) {
      at.run++;
    }
    if (at.run == runs.size()) {
      note("not expected: " + text);
      return;
    }
    Run run = runs.get(at.run);
    Call call = run.calls().get(at.call);
    String expected = prediction.of(at.run, run, call, line);
    lines++;
    at.elements += line.longNumber("part");
    if (at.seen.get(line.channel())) {
      note("the second line of its channel: " + text);
    } else if (!expected.equals(prediction.of(line))) {
      note(run.ranks() + " ranks, " + call + "\n predicted: " + expected + "\n planned:   " + text);
    }
    at.seen.set(line.channel());
    if (at.seen.cardinality() == line.channels()) {
      if (at.elements != line.longNumber("count")) {
        note("its channels have " + at.elements + " elements: " + text);
      }
      next(at, run, line.rank());
    }
  }

  private void next(Position at, Run run, int rank) {
    at.seen.clear();
    at.elements = 0;
    at.call++;
    if (rank == 0) {
      collectives++;
    }
    if (at.call == run.calls().size()) {
      at.call = 0;
      at.run++;
    }
  }

  private void note(String difference) {
    different++;
    if (notes.size() < MAX_NOTES) {
      notes.add(difference);
    }
  }

  /** Returns the number of collectives of which rank 0 has all lines. */
  long collectives() {
    return collectives;
  }

  long expectedCollectives() {
    return runs.stream().mapToLong(run -> run.calls().size()).sum();
  }

  long different() {
    return different;
  }

  String summary() {
    return collectives + " collectives, " + lines + " lines, " + different + " different";
  }

  /** Returns the first differences. */
  String notes() {
    return String.join("\n", notes);
  }
}
