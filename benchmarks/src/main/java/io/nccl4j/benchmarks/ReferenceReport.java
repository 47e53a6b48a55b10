package io.nccl4j.benchmarks;

import io.nccl4j.DataType;
import io.nccl4j.benchmarks.Measurements.Best;
import io.nccl4j.benchmarks.PeerProgram.Cell;
import io.nccl4j.benchmarks.PeerProgram.Kind;
import io.nccl4j.benchmarks.ReferencePeers.Row;
import io.nccl4j.benchmarks.ReferenceTypes.Reducer;
import io.nccl4j.benchmarks.ReferenceTypes.Reduction;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The report of {@code scripts/bench reference}. */
final class ReferenceReport {
  private static final Reduction FLOAT32_SUM = new Reduction(DataType.FLOAT32, Reducer.SUM);

  private final Measurements measurements;
  private final Set<Row> rows;
  private final int rounds;

  ReferenceReport(Measurements measurements, Set<Row> rows, int rounds) {
    this.measurements = measurements;
    this.rows = rows;
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
    StringBuilder text = new StringBuilder(Report.machine());
    text.append("Median of %d rounds. Microseconds of one all-reduce.%n".formatted(rounds));
    for (Row row : rows) {
      if (row == Row.TYPES) {
        row.sizes().forEach(size -> text.append(types(size.bytes())));
        continue;
      }
      for (String mode : ReferencePeers.MODES) {
        for (int ranks : row.ranks()) {
          text.append(times(row, ranks, mode));
        }
      }
    }
    return text.append('\n').append(heap()).append(leftOut()).toString();
  }

  private String times(Row row, int ranks, String mode) {
    List<Long> sizes = row.sizes().stream().map(Sizing::bytes).toList();
    String lines =
        row.kinds().stream()
            .map(
                kind ->
                    line(
                        kind.toString(),
                        sizes,
                        size -> time(measurements.best(kind, ranks, new Cell(size, mode)))))
            .collect(Collectors.joining());
    String head = head(sizes, ReferenceReport::size);
    return "%n%s, %d ranks, inputs %s:%n%n".formatted(row, ranks, mode) + head + lines;
  }

  private static String time(Optional<Best> best) {
    if (best.isEmpty()) {
      return "";
    }
    double microseconds = best.get().microseconds();
    String number = String.format(Locale.ROOT, microseconds < 100 ? "%.2f" : "%.0f", microseconds);
    String setting = best.get().program().setting();
    return setting.isEmpty() ? number : number + " " + setting;
  }

  private static String size(long bytes) {
    return bytes < 1 << 20 ? (bytes >> 10) + " KiB" : (bytes >> 20) + " MiB";
  }

  private String types(long bytes) {
    List<Reducer> operators = List.of(Reducer.values());
    String lines =
        Stream.of(DataType.values())
            .map(
                type ->
                    line(lowerCase(type), operators, operator -> relative(type, operator, bytes)))
            .collect(Collectors.joining());
    return """

        %s, 2 ranks in process, %s, bytes per second relative to float32 sum, median of the batches of one round:

        """
            .formatted(Row.TYPES, size(bytes))
        + head(operators, ReferenceReport::lowerCase)
        + lines;
  }

  private String relative(DataType type, Reducer operator, long bytes) {
    Predicate<PeerProgram> own = program -> program.setting().equals(type.name());
    Optional<Best> sum =
        measurements.best(Kind.TYPES, 2, new Cell(bytes, FLOAT32_SUM.toString()), own);
    Optional<Best> found =
        measurements.best(
            Kind.TYPES, 2, new Cell(bytes, new Reduction(type, operator).toString()), own);
    return sum.isEmpty() || found.isEmpty()
        ? ""
        : String.format(Locale.ROOT, "%.2f", sum.get().microseconds() / found.get().microseconds());
  }

  private static String lowerCase(Enum<?> constant) {
    return constant.name().toLowerCase(Locale.ROOT);
  }

  private static <T> String head(List<T> columns, Function<T, String> label) {
    return line("", columns, label) + "|---".repeat(columns.size() + 1) + "|\n";
  }

  /** Returns a line of a table; nothing if it has no content. */
  private static <T> String line(String label, List<T> columns, Function<T, String> content) {
    List<String> contents = columns.stream().map(content).toList();
    return contents.stream().allMatch(String::isEmpty)
        ? ""
        : "| %s | %s |%n".formatted(label, String.join(" | ", contents));
  }

  private String heap() {
    double bytes =
        measurements.heapBytes(Kind.REFERENCE, 2, new Cell(1 << 10, ReferencePeers.MODES.get(0)));
    return Double.isNaN(bytes)
        ? ""
        : "- heap bytes that an all-reduce of 1 KiB allocates, 2 ranks in process: %.0f%n"
            .formatted(bytes);
  }

  private String leftOut() {
    return measurements.leftOut().stream()
        .map(program -> "- %s: failed its own check, left out%n".formatted(program))
        .collect(Collectors.joining());
  }
}
