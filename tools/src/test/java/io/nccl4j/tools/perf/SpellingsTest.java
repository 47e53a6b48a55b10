package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Flags and numbers are accepted in the spellings of nccl-tests: getopt_long, strtol and sscanf.
 */
class SpellingsTest {
  private static Command run(String line) {
    List<String> args = new ArrayList<>(List.of("all_reduce", "--backend", "reference"));
    args.addAll(List.of("--ranks", "2", "-w", "0", "-c", "0", "-e", "2M"));
    for (String word : line.split(" ", -1)) {
      args.add(word.replace('~', ' '));
    }
    return Command.run(args.toArray(String[]::new));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          -b 1024            | 1024
          -b1024             | 1024
          -b 8 -b 1K         | 1024
          -b 8 --minbytes 1K | 1024
          --minbytes 1K      | 1024
          --minbytes=1K      | 1024
          --minb 1K          | 1024
          --mi=1k            | 1024
          -b 1KB             | 1024
          -b 1~K             | 1024
          -b ~1K             | 1024
          -b +1K             | 1024
          -b 1.5K            | 1536
          -b .5K             | 512
          -b 2.K             | 2048
          -b 1e3             | 1000
          -b 1E+3K           | 1024000
          -b 12e-1K          | 1228
          -b 0x400           | 1024
          -b 0X1.8p9         | 768
          -b 0x1K            | 1024
          """)
  void sizesAreReadAsByNcclTests(String line, long bytes) {
    Command command = run("-n 1 " + line);
    assertEquals("", command.err());
    assertEquals(Commands.OK, command.status());
    assertTrue(command.out().contains(" minBytes " + bytes + " "), command.out());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          -n 20 -n 5         | 5
          -n 20 --iters 5    | 5
          -n5                | 5
          --iters=5          | 5
          --it 5             | 5
          -n +5              | 5
          -n ~5              | 5
          -n 0x1F            | 31
          -n 0X10            | 16
          -n 010             | 8
          -c 1 -c 0 -n 5     | 5
          --report_c 1 -n 5  | 5
          """)
  void numbersAreReadAsByNcclTests(String line, int iterations) {
    Command command = run("-b 8 -e 8 " + line);
    assertEquals("", command.err());
    assertEquals(Commands.OK, command.status());
    assertTrue(command.out().contains(" iters: " + iterations + " agg"), command.out());
  }

  @ParameterizedTest
  @CsvSource({
    "allreduce, all_reduce",
    "AllReduce, all_reduce",
    "ALL_REDUCE, all_reduce",
    "all-gather, all_gather",
    "ReduceScatter, reduce_scatter",
    "all_to_all, alltoall",
    "send-recv, sendrecv"
  })
  void collectiveIsFoundInEverySpelling(String spelling, String label) {
    assertEquals(label, Collective.named(spelling).label());
  }

  @ParameterizedTest
  @ValueSource(strings = {"--step 2", "--report 1", "--per 1", "-n 5x", "-n 08", "-n #10", "-b 1Z"})
  void ambiguousOrInvalidSpellingIsRefused(String line) {
    Command command = run(line);
    assertEquals(Commands.BAD_ARGUMENTS, command.status(), command.out());
    assertEquals(1, command.errors().size(), command.err());
  }
}
