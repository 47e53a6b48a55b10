package io.nccl4j.benchmarks;

import io.nccl4j.DataType;
import io.nccl4j.benchmarks.Measurements.Best;
import io.nccl4j.benchmarks.PeerProgram.Cell;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import io.nccl4j.benchmarks.ReferenceTypes.Reducer;
import io.nccl4j.benchmarks.ReferenceTypes.Reduction;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The report of {@code scripts/bench reference}: tables, and which goals are reached. */
final class ReferenceReport {
  static final long MANY_RANKS_BYTES = 16 << 20;
  static final List<Integer> FEW_AND_MANY = List.of(4, 16);

  private static final List<Long> SIZES =
      List.of(1L << 10, 64L << 10, 1L << 20, 16L << 20, 128L << 20);
  private static final List<Long> TYPES_SIZES = List.of(1L << 20, 16L << 20);
  private static final String UNTOUCHED = ReferenceRanks.Mode.UNTOUCHED.toString();
  private static final Reduction FLOAT32_SUM = new Reduction(DataType.FLOAT32, Reducer.SUM);

  private static final Map<Integer, List<Double>> IN_PROCESS_GOALS =
      Map.of(2, List.of(2.3, 6.0, 5.0, 2.4, 2.5), 4, List.of(2.0, 6.0, 3.6, 3.6, 3.7));
  private static final Map<Integer, List<Double>> RING_GOALS =
      Map.of(2, List.of(1.2, 2.0, 2.5, 2.1, 2.5), 4, List.of(0.6, 1.5, 2.3, 1.8, 2.5));
  private static final List<Double> SHARED_MEMORY_GOALS = List.of(1.0, 1.5, 1.5, 1.5, 1.5);
  private static final List<Double> TCP_GOALS = List.of(2.0, 2.0, 1.3, 1.2, 1.2);
  private static final double C_GOAL = 0.85;
  private static final List<Double> C_GOALS = List.of(0.0, C_GOAL, C_GOAL, C_GOAL, C_GOAL);
  private static final double MANY_RANKS_GOAL = 2;
  private static final double FEW_BITS_SUM_GOAL = 1.0 / 2;
  private static final double OTHER_GOAL = 1.0 / 3;

  private final Measurements measurements;
  private final int rounds;

  /** One row of a table whose columns are sizes. */
  private record Line(String label, Function<Cell, String> content) {}

  ReferenceReport(Measurements measurements, int rounds) {
    this.measurements = measurements;
    this.rounds = rounds;
  }

  /**
   * Returns the reductions that a program of {@code Kind.TYPES} measures: all operators of its
   * type, and the float32 sum that they are compared with.
   */
  static List<String> reductions(PeerProgram program) {
    DataType type = DataType.valueOf(program.setting());
    Stream<Reduction> own =
        Stream.of(Reducer.values()).map(operator -> new Reduction(type, operator));
    return Stream.concat(Stream.of(FLOAT32_SUM), own).distinct().map(Object::toString).toList();
  }

  String text() throws IOException {
    StringBuilder text = new StringBuilder(Page.machine());
    text.append("Median of %d rounds. Microseconds of one all-reduce.%n".formatted(rounds));
    text.append(cacheLineLatencies());
    for (ReferenceRanks.Mode mode : ReferenceRanks.Mode.values()) {
      for (int ranks : ReferencePeers.RANKS) {
        text.append(inProcess(ranks, mode.toString()));
      }
    }
    for (ReferenceRanks.Mode mode : ReferenceRanks.Mode.values()) {
      for (int ranks : ReferencePeers.RANKS) {
        text.append(sharedMemory(ranks, mode.toString())).append(tcp(ranks, mode.toString()));
      }
    }
    TYPES_SIZES.forEach(size -> text.append(types(size)));
    return text.append('\n').append(manyRanks()).append(heap()).append(leftOut()).toString();
  }

  /**
   * Returns a line with the latency of a cache line, which determines the cost of communication
   * between ranks and may change if a virtual machine is moved.
   */
  private String cacheLineLatencies() {
    if (measurements.cacheLineLatencies().stream().allMatch(OptionalDouble::isEmpty)) {
      return "The time of a cache line from one processor to another was not measured.\n";
    }
    String all =
        measurements.cacheLineLatencies().stream()
            .map(one -> one.isPresent() ? whole(one.getAsDouble()) : "(not measured)")
            .collect(Collectors.joining(", "));
    return "A cache line takes %s ns from one processor to another, measured before the first round and after each.%n"
        .formatted(all);
  }

  private String inProcess(int ranks, String mode) {
    if (!measured(Kind.REFERENCE, ranks, mode)) {
      return "";
    }
    List<Line> lines = new ArrayList<>(openMpi(ranks));
    lines.add(time("threads in C", Kind.C_THREADS, ranks));
    lines.add(time("nccl4j", Kind.REFERENCE, ranks));
    lines.add(time("nccl4j, the ring alone", Kind.RING, ranks));
    List<Double> goals = goals(mode, IN_PROCESS_GOALS.get(ranks));
    lines.addAll(againstOpenMpi("nccl4j", Kind.REFERENCE, ranks, goals));
    lines.add(
        ratio(
            "nccl4j against threads in C",
            Kind.REFERENCE,
            Kind.C_THREADS,
            ranks,
            goals(mode, C_GOALS)));
    lines.addAll(againstOpenMpi("the ring", Kind.RING, ranks, goals(mode, RING_GOALS.get(ranks))));
    return table("In process", ranks, mode, lines);
  }

  private String sharedMemory(int ranks, String mode) {
    if (!measured(Kind.SHARED_MEMORY, ranks, mode)) {
      return "";
    }
    List<Line> lines = new ArrayList<>(openMpi(ranks));
    lines.add(time("nccl4j", Kind.SHARED_MEMORY, ranks));
    lines.addAll(
        againstOpenMpi("nccl4j", Kind.SHARED_MEMORY, ranks, goals(mode, SHARED_MEMORY_GOALS)));
    return table("Processes, shared memory", ranks, mode, lines);
  }

  private String tcp(int ranks, String mode) {
    if (!measured(Kind.TCP, ranks, mode)) {
      return "";
    }
    List<Line> lines =
        List.of(
            time("Gloo's best", Kind.GLOO, ranks),
            time("nccl4j", Kind.TCP, ranks),
            ratio("nccl4j against Gloo", Kind.TCP, Kind.GLOO, ranks, goals(mode, TCP_GOALS)));
    return table("Processes, TCP on loopback", ranks, mode, lines);
  }

  /** Returns the goals for a mode; there are none for rewritten inputs. */
  private static List<Double> goals(String mode, List<Double> goals) {
    return mode.equals(UNTOUCHED) ? goals : List.of();
  }

  private List<Line> openMpi(int ranks) {
    return List.of(
        time("Open MPI, default or segmented ring", Kind.OPEN_MPI, ranks, PeerProgram::usual),
        time("Open MPI's best of all", Kind.OPEN_MPI, ranks));
  }

  private List<Line> againstOpenMpi(String label, Kind kind, int ranks, List<Double> goals) {
    return List.of(
        ratio(
            label + " against default or segmented ring",
            kind,
            Kind.OPEN_MPI,
            ranks,
            goals,
            PeerProgram::usual),
        ratio(label + " against the best of all", kind, Kind.OPEN_MPI, ranks, goals));
  }

  private Line time(String label, Kind kind, int ranks) {
    return time(label, kind, ranks, program -> true);
  }

  private Line time(String label, Kind kind, int ranks, Predicate<PeerProgram> filter) {
    return new Line(
        label,
        cell -> measurements.best(kind, ranks, cell, filter).map(ReferenceReport::time).orElse(""));
  }

  private static String time(Best best) {
    double microseconds = best.microseconds();
    String number = String.format(Locale.ROOT, microseconds < 100 ? "%.2f" : "%.0f", microseconds);
    String setting = best.program().setting();
    return setting.isEmpty() ? number : number + " " + setting;
  }

  private Line ratio(String label, Kind kind, Kind peer, int ranks, List<Double> goals) {
    return ratio(label, kind, peer, ranks, goals, program -> true);
  }

  /** Returns a row with the speed relative to a peer. */
  private Line ratio(
      String label,
      Kind kind,
      Kind peer,
      int ranks,
      List<Double> goals,
      Predicate<PeerProgram> filter) {
    return new Line(
        label,
        cell -> {
          Optional<Best> own = measurements.best(kind, ranks, cell);
          Optional<Best> others = measurements.best(peer, ranks, cell, filter);
          if (own.isEmpty() || others.isEmpty()) {
            return "";
          }
          double ratio = others.get().microseconds() / own.get().microseconds();
          double goal = goals.isEmpty() ? 0 : goals.get(SIZES.indexOf(cell.bytes()));
          return goal == 0 ? number(ratio) : Page.againstLeast(ratio, goal);
        });
  }

  private static String number(double value) {
    return String.format(Locale.ROOT, "%.2f", value);
  }

  private static String whole(double value) {
    return String.format(Locale.ROOT, "%.0f", value);
  }

  private boolean measured(Kind kind, int ranks, String mode) {
    return measurements.best(kind, ranks, new Cell(SIZES.getFirst(), mode)).isPresent();
  }

  private static String table(String title, int ranks, String mode, List<Line> lines) {
    StringBuilder text =
        new StringBuilder("%n%s, %d ranks, inputs %s:%n%n".formatted(title, ranks, mode));
    text.append("| | 1 KiB | 64 KiB | 1 MiB | 16 MiB | 128 MiB |\n|---|---|---|---|---|---|\n");
    for (Line line : lines) {
      List<String> contents =
          SIZES.stream().map(size -> line.content().apply(new Cell(size, mode))).toList();
      if (contents.stream().anyMatch(content -> !content.isEmpty())) {
        text.append("| %s | %s |%n".formatted(line.label(), String.join(" | ", contents)));
      }
    }
    return text.toString();
  }

  private String types(long bytes) {
    StringBuilder text = new StringBuilder();
    for (DataType type : DataType.values()) {
      List<String> contents =
          Stream.of(Reducer.values())
              .map(operator -> relative(new Reduction(type, operator), bytes))
              .toList();
      if (contents.stream().anyMatch(content -> !content.isEmpty())) {
        text.append(
            "| %s | %s |%n"
                .formatted(type.name().toLowerCase(Locale.ROOT), String.join(" | ", contents)));
      }
    }
    if (text.isEmpty()) {
      return "";
    }
    String head =
        """

        In process, 2 ranks, %d MiB, bytes per second relative to float32 sum, median of the batches of one
        round; %s is too slow (goals: sums of bfloat16, float16 and float8 at least 1/2, all else at least 1/3):

        | | sum | prod | min | max | avg | mulsum |
        |---|---|---|---|---|---|---|
        """
            .formatted(bytes >> 20, TOO_SLOW);
    return head + text;
  }

  private static final String TOO_SLOW = "**!**";

  private String relative(Reduction reduction, long bytes) {
    Predicate<PeerProgram> own = program -> program.setting().equals(reduction.type().name());
    Optional<Best> sum =
        measurements.best(Kind.TYPES, 2, new Cell(bytes, FLOAT32_SUM.toString()), own);
    Optional<Best> found =
        measurements.best(Kind.TYPES, 2, new Cell(bytes, reduction.toString()), own);
    if (sum.isEmpty() || found.isEmpty()) {
      return "";
    }
    double relative = sum.get().microseconds() / found.get().microseconds();
    boolean fewBits = reduction.type().floating() && reduction.type().bytes() < Float.BYTES;
    double goal = fewBits && reduction.operator() == Reducer.SUM ? FEW_BITS_SUM_GOAL : OTHER_GOAL;
    return number(relative) + (relative < goal ? " " + TOO_SLOW : "");
  }

  /**
   * Returns the time per byte of many ranks relative to few. Direct reduction reads every rank's
   * input and writes every output, so the bytes grow with the number of ranks.
   */
  private String manyRanks() {
    Cell cell = new Cell(MANY_RANKS_BYTES, UNTOUCHED);
    List<Optional<Best>> found =
        FEW_AND_MANY.stream().map(ranks -> measurements.best(Kind.REFERENCE, ranks, cell)).toList();
    if (found.stream().anyMatch(Optional::isEmpty)) {
      return "";
    }
    double perRank =
        found.getLast().orElseThrow().microseconds()
            / FEW_AND_MANY.getLast()
            / (found.getFirst().orElseThrow().microseconds() / FEW_AND_MANY.getFirst());
    return "- %d ranks in process at 16 MiB, %.0f µs, time per byte read and written in that of %d ranks: %s%n"
        .formatted(
            FEW_AND_MANY.getLast(),
            found.getLast().orElseThrow().microseconds(),
            FEW_AND_MANY.getFirst(),
            Page.againstGoal(perRank, MANY_RANKS_GOAL));
  }

  private String leftOut() {
    StringBuilder text = new StringBuilder();
    for (PeerProgram program : measurements.leftOut()) {
      text.append("- %s: failed its own check, left out%n".formatted(program));
    }
    return text.toString();
  }

  private String heap() {
    double bytes = measurements.heapBytes(Kind.REFERENCE, 2, new Cell(SIZES.getFirst(), UNTOUCHED));
    return Double.isNaN(bytes)
        ? ""
        : "- heap bytes that an all-reduce of 1 KiB allocates, 2 ranks in process: %s%n"
            .formatted(Page.againstGoal(Math.rint(bytes), 0));
  }
}
