package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** The output has the lines and columns of nccl-tests 2.19, and the data is correct. */
class OutputTest {
  @ParameterizedTest
  @Tag("slow")
  @CsvSource({"ring", "tree"})
  void eightBytesTo128MiBAreTwentyFiveCorrectRows(String algorithm) {
    Command command =
        Command.reference(
            "all_reduce --ranks 2 --algo " + algorithm + " -b 8 -e 128M -f 2 -n 1 -w 0");
    assertEquals(Commands.OK, command.status(), command.err());
    List<List<String>> rows = command.rows();
    assertEquals(25, rows.size());
    assertEquals(
        LongStream.iterate(8, size -> size * 2).limit(25).mapToObj(Long::toString).toList(),
        rows.stream().map(List::getFirst).toList());
    rows.forEach(row -> checkRow(row, "float", "sum", "-1"));
    assertTrue(command.out().contains("# Out of bounds values : 0 OK\n"), command.out());
  }

  @ParameterizedTest
  @CsvSource({"1, 2", "2, 1"})
  void graphsAreCapturedLaunchedAndChecked(String threads, String ranksPerThread) {
    Command command =
        Command.reference(
            "all_reduce -t " + threads + " -g " + ranksPerThread + " -G 3 -n 4 -b 8 -e 64K -f 2");
    assertEquals(Commands.OK, command.status(), command.err());
    assertEquals(14, command.rows().size());
    command.rows().forEach(row -> checkRow(row, "float", "sum", "-1"));
    assertTrue(command.out().contains(" graph: 3 "), command.out());
  }

  static Stream<String[]> algorithmsTypesAndRanks() {
    return Stream.of("ring", "tree")
        .flatMap(
            algorithm ->
                Stream.of("float", "bfloat16")
                    .flatMap(
                        type ->
                            Stream.of("2", "3", "4", "7")
                                .map(ranks -> new String[] {algorithm, type, ranks})));
  }

  @ParameterizedTest
  @MethodSource("algorithmsTypesAndRanks")
  void nothingIsWrong(String algorithm, String type, String ranks) {
    Command command =
        Command.reference(
            "all_reduce --ranks "
                + ranks
                + " --algo "
                + algorithm
                + " -d "
                + type
                + " -b 8 -e 1M -f 2 -n 2 --no-jit-warmup");
    assertEquals(Commands.OK, command.status(), command.err());
    assertEquals(18, command.rows().size());
    command.rows().forEach(row -> checkRow(row, type, "sum", "-1"));
  }

  @ParameterizedTest
  @EnumSource(Collective.class)
  void collectiveIsCorrectForAllTypesOperatorsAndRoots(Collective collective) {
    Command command =
        Command.reference(
            collective.label()
                + " --ranks 3 -b 1K -e 64K -f 64 -d all -o all -r -1 -n 2 --no-jit-warmup");
    assertEquals(Commands.OK, command.status(), command.err());
    int ops = collective.reduces() || collective == Collective.SENDRECV ? 6 : 1;
    int roots = collective.rooted() ? 3 : 1;
    assertEquals(2 * 12 * ops * roots, command.rows().size());
    for (List<String> row : command.rows()) {
      assertEquals(13, row.size(), row.toString());
      assertEquals("0", row.get(8), row.toString());
      assertEquals(collective.hasInPlace() ? "0" : "N/A", row.get(12), row.toString());
    }
  }

  private static void checkRow(List<String> row, String type, String op, String root) {
    assertEquals(13, row.size(), row.toString());
    assertEquals(List.of(type, op, root), row.subList(2, 5));
    for (int column : new int[] {5, 6, 7, 9, 10, 11}) {
      assertTrue(Double.parseDouble(row.get(column)) >= 0, row.toString());
    }
    assertTrue(Double.parseDouble(row.get(5)) > 0, row.toString());
    assertEquals("0", row.get(8), row.toString());
    assertEquals("0", row.get(12), row.toString());
  }

  @Test
  void linesMatchNcclTests() {
    Command command = Command.reference("all_reduce --ranks 2 -b 1K -e 1K -n 1");
    List<String> lines = new ArrayList<>(command.out().lines().toList());
    assertEquals(
        "# JIT warm-up: before each type and operator, until times are stable (--no-jit-warmup)",
        lines.remove(1));
    assertEquals("# Collective test starting: all_reduce_perf", lines.get(1));
    assertEquals(
        "# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 1048576(bytes) warmup iters: 1 iters: 1 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        lines.get(2));
    assertEquals(List.of("#", "# Using devices"), lines.subList(3, 5));
    String rank = "#  Rank +%d Group +0 Pid +\\d+ on +\\S+ device +%d \\[0000:00:00\\] .+";
    assertTrue(lines.get(5).matches(rank.formatted(0, 0)), lines.get(5));
    assertTrue(lines.get(6).matches(rank.formatted(1, 1)), lines.get(6));
    assertEquals(
        List.of(
            "#",
            "#                                                              out-of-place                       in-place          ",
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         "),
        lines.subList(7, 11));
    assertTrue(lines.get(11).startsWith("        1024           256     float     sum      -1  "));
    assertEquals("# Out of bounds values : 0 OK", lines.get(12));
    assertTrue(lines.get(13).matches("# Avg bus bandwidth    : [0-9.e+-]+ "), lines.get(13));
    assertEquals(
        List.of("#", "# Collective test concluded: all_reduce_perf", "#", ""),
        lines.subList(14, 18));
  }

  @Test
  void otherFlagsChangeTheColumnsAsInNcclTests() {
    Command command =
        Command.reference(
            "all_reduce -t 2 -b 1K -e 1K -n 3 -I 1 -K 1 -S 1 -C 1 -z 3 -c 0 -m 2 -a 3");
    assertEquals(Commands.OK, command.status(), command.err());
    List<String> row = command.rows().getFirst();
    assertEquals(13 + 8 + 2, row.size(), row.toString());
    assertEquals(List.of("N/A", "N/A"), List.of(row.get(8), row.get(16)));
    assertTrue(command.out().contains(" cputime "), command.out());
    assertTrue(command.out().contains(" timestamp"), command.out());
  }

  @Test
  void cyclesRepeatTheTable() {
    Command command =
        Command.reference("broadcast -b 1K -e 4K -f 2 -N 3 -r 1 -u 1 --no-jit-warmup");
    assertEquals(9, command.rows().size());
    assertEquals("1", command.rows().getFirst().get(4));
  }

  @Test
  void tableSaysWhatInPlaceColumnsOfAlltoallAre() {
    Command command = Command.reference("alltoall -b 4K -e 4K -n 1 --no-jit-warmup");
    String note = "# alltoall has no in-place form: those columns are a second run out of place \n";
    assertTrue(command.out().contains(note), command.out());
  }

  @Test
  void averageCoversAllBandwidths() {
    Command command = Command.reference("broadcast -b 4M -e 8M -f 2 --no-jit-warmup");
    double sum = 0;
    for (List<String> row : command.rows()) {
      sum += Double.parseDouble(row.get(7)) + Double.parseDouble(row.get(11));
    }
    String line = command.out().lines().filter(l -> l.contains("Avg bus")).findAny().orElseThrow();
    assertEquals(sum / 4, Double.parseDouble(line.substring(line.indexOf(':') + 1)), 0.006);
  }
}
