package io.nccl4j.benchmarks;

import io.nccl4j.benchmarks.PeerProgram.Cell;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import io.nccl4j.benchmarks.PeerProgram.Measurement;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;

/** The results of all programs, in the rounds so far. */
final class Measurements {
  private final Map<PeerProgram, Map<Cell, List<Measurement>>> results = new LinkedHashMap<>();
  private final Set<PeerProgram> wrong = new LinkedHashSet<>();

  /**
   * The best program of a kind at a size and mode.
   *
   * @param microseconds the median of its rounds
   */
  record Best(PeerProgram program, double microseconds) {}

  void add(PeerProgram program, Map<Cell, Measurement> round) {
    Map<Cell, List<Measurement>> cells = results.computeIfAbsent(program, p -> new HashMap<>());
    round.forEach(
        (cell, result) -> cells.computeIfAbsent(cell, c -> new ArrayList<>()).add(result));
  }

  /** Excludes a program that produced a wrong result, and removes its measurements. */
  void leaveOut(PeerProgram program) {
    results.remove(program);
    wrong.add(program);
  }

  /** Returns the excluded programs. */
  Set<PeerProgram> leftOut() {
    return Collections.unmodifiableSet(wrong);
  }

  /** Returns the best program of a kind at a cell; empty if none has measured it. */
  Optional<Best> best(Kind kind, int ranks, Cell cell) {
    return best(kind, ranks, cell, program -> true);
  }

  /** Returns the best matching program of a kind at a cell; empty if none has measured it. */
  Optional<Best> best(Kind kind, int ranks, Cell cell, Predicate<PeerProgram> filter) {
    return results.keySet().stream()
        .filter(program -> program.kind() == kind && program.ranks() == ranks)
        .filter(filter)
        .filter(program -> results.get(program).containsKey(cell))
        .map(program -> new Best(program, median(program, cell)))
        .min(Comparator.comparingDouble(Best::microseconds));
  }

  /** Returns whether a program is, at any size, within a factor of the best of its kind. */
  boolean near(PeerProgram program, double factor) {
    return results.getOrDefault(program, Map.of()).keySet().stream()
        .anyMatch(
            cell ->
                median(program, cell)
                    <= factor
                        * best(program.kind(), program.ranks(), cell).orElseThrow().microseconds());
  }

  /** Returns the minimum over the rounds of the bytes that an operation allocates. */
  double heapBytes(Kind kind, int ranks, Cell cell) {
    return results.entrySet().stream()
        .filter(entry -> entry.getKey().kind() == kind && entry.getKey().ranks() == ranks)
        .flatMap(entry -> entry.getValue().getOrDefault(cell, List.of()).stream())
        .mapToDouble(Measurement::heapBytes)
        .min()
        .orElse(Double.NaN);
  }

  private double median(PeerProgram program, Cell cell) {
    return Report.median(
        results.get(program).get(cell).stream().mapToDouble(Measurement::microseconds).toArray());
  }
}
