package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Rules by which published scripts read nccl-tests' output give the measured values. */
class PublicParsersTest {
  private static final int RANKS = 2;
  private static final List<Long> SIZES = List.of(64L << 10, 256L << 10, 1L << 20);

  /** What a script reads of a row. */
  private record Bandwidth(long size, double outOfPlace, double inPlace) {}

  @TempDir Path folder;

  @ParameterizedTest
  @CsvSource({
    "all_reduce, 1, 0",
    "all_gather, 0.5, 0",
    "reduce_scatter, 0.5, 0",
    "broadcast, 1, 0",
    "reduce, 1, 0",
    "alltoall, 0.5, N/A",
    "gather, 0.5, 0",
    "scatter, 0.5, 0",
    "sendrecv, 1, N/A"
  })
  void publishedRulesReadTheMeasuredValues(String collective, double busFactor, String wrong)
      throws IOException {
    Path file = folder.resolve("run.json");
    Command command =
        Command.run(
            (collective
                    + " --backend reference --ranks "
                    + RANKS
                    + " -b 64K -e 1M -f 4 -n 5 --no-jit-warmup -J")
                .concat(" " + file)
                .split(" ", -1));
    assertEquals(Commands.OK, command.status(), command.err());
    List<Bandwidth> measured = json(Files.readString(file), busFactor, wrong);
    assertEquals(SIZES, measured.stream().map(Bandwidth::size).toList());
    assertRead(measured, fixedColumns(command.out()));
    assertRead(measured, numericRowsOfThirteen(command.out(), wrong));
    double average =
        measured.stream().mapToDouble(row -> row.outOfPlace + row.inPlace).sum()
            / (2 * measured.size());
    assertEquals(average, average(command.out()), average * 1e-5);
  }

  /** The values of a table have two decimals, or fewer where the column has no room. */
  private static void assertRead(List<Bandwidth> measured, List<Bandwidth> read) {
    assertEquals(SIZES, read.stream().map(Bandwidth::size).toList());
    for (int i = 0; i < read.size(); i++) {
      assertEquals(measured.get(i).outOfPlace, read.get(i).outOfPlace, 0.0051);
      assertEquals(measured.get(i).inPlace, read.get(i).inPlace, 0.0051);
    }
  }

  /** As with {@code awk '/^ *[0-9]/ {print $1, $8, $12}'}. */
  private static List<Bandwidth> fixedColumns(String out) {
    List<Bandwidth> rows = new ArrayList<>();
    for (String line : out.lines().filter(line -> line.matches(" *[0-9].*")).toList()) {
      String[] fields = line.strip().split("\\s+", -1);
      rows.add(
          new Bandwidth(
              Long.parseLong(fields[0]),
              Double.parseDouble(fields[7]),
              Double.parseDouble(fields[11])));
    }
    return rows;
  }

  /** Drops rows that do not have 13 fields, or no finite number where one is expected. */
  private static List<Bandwidth> numericRowsOfThirteen(String out, String wrong) {
    List<Bandwidth> rows = new ArrayList<>();
    for (String line : out.lines().map(String::strip).toList()) {
      String[] fields = line.split("\\s+", -1);
      if (fields.length == 13 && line.matches("[0-9].*")) {
        double[] numbers = new double[13];
        boolean finite = true;
        for (int column : new int[] {0, 5, 6, 7, 9, 10, 11}) {
          numbers[column] = Double.parseDouble(fields[column]);
          finite &= Double.isFinite(numbers[column]);
        }
        if (finite) {
          assertEquals(List.of("0", wrong), List.of(fields[8], fields[12]), line);
          rows.add(new Bandwidth((long) numbers[0], numbers[7], numbers[11]));
        }
      }
    }
    return rows;
  }

  /** As with {@code grep "# Avg bus bandwidth" | awk '{print $NF}'}. */
  private static double average(String out) {
    String line =
        out.lines().filter(l -> l.contains("# Avg bus bandwidth")).findAny().orElseThrow();
    return Double.parseDouble(line.substring(line.strip().lastIndexOf(' ')));
  }

  /** By the names in the JSON of {@code -J}; also checks the bandwidths by their definition. */
  private static List<Bandwidth> json(String text, double busFactor, String wrong)
      throws IOException {
    List<Bandwidth> rows = new ArrayList<>();
    for (Object one : (List<?>) ((Map<?, ?>) JsonTree.parse(text)).get("results")) {
      Map<?, ?> row = (Map<?, ?>) one;
      long size = ((Number) row.get("size")).longValue();
      double[] busBw = new double[2];
      for (int place = 0; place < 2; place++) {
        Map<?, ?> cell = (Map<?, ?>) row.get(place == 0 ? "out_of_place" : "in_place");
        double seconds = ((Number) cell.get("time")).doubleValue() * 1e-6;
        assertTrue(seconds > 0, text);
        double algBw = ((Number) cell.get("alg_bw")).doubleValue();
        assertEquals(size / seconds / 1e9, algBw, algBw * 1e-9);
        busBw[place] = ((Number) cell.get("bus_bw")).doubleValue();
        assertEquals(algBw * busFactor, busBw[place], algBw * 1e-9);
        Object expected = place == 1 && wrong.equals("N/A") ? null : (Object) 0L;
        assertEquals(expected, cell.get("nwrong"));
      }
      rows.add(new Bandwidth(size, busBw[0], busBw[1]));
    }
    return rows;
  }
}
