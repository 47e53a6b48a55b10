package io.nccl4j.tools.simulate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.plots.Chart;
import io.nccl4j.tools.plots.Curve;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;

/** Runs the command. */
class SimulateTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return Simulate.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        args);
  }

  private List<String> lines() {
    return out.toString(StandardCharsets.UTF_8).lines().map(String::strip).toList();
  }

  private long linesLike(String regex) {
    return lines().stream().filter(line -> line.matches(regex)).count();
  }

  @Test
  void oneSizePrintsAlgorithmsAndProtocols() {
    assertEquals(
        Commands.OK,
        run(
            "--ranks 4096 --size 1G --nodes 512 --intra 450GB/s --inter 50GB/s --latency 5us"
                .split(" ")));
    assertTrue(lines().contains("1 GiB (1073741824 bytes)"), lines()::toString);
    assertEquals(
        9, linesLike("(ring|tree|hierarchical, \\w+) +(Simple|LL|LL128) .* (latency|bandwidth)"));
    assertEquals(1, linesLike("best: tree with Simple, .* ms"));
  }

  @Test
  void noSizePrintsTableOfSizes() {
    assertEquals(Commands.OK, run("--ranks", "8", "--nodes", "8"));
    assertEquals(13, linesLike("\\d+ [KMG]iB +.*"));
    assertEquals(1, linesLike("ring and tree: tree first, ring from [0-9.]+ KiB \\(\\d+ bytes\\)"));
    // Hierarchical needs several ranks per node.
    assertEquals(0, linesLike("(?i).*hierarchical.*"));
  }

  @Test
  void oneNodeIsSingular() {
    assertEquals(Commands.OK, run("--ranks", "2", "--channels", "1"));
    assertEquals(
        "all_reduce on 2 ranks, 2 per node (1 node), 1 channel, float32", lines().getFirst());
  }

  @Test
  void sweepReachesAHundredThousandRanks() {
    assertEquals(Commands.OK, run("--ranks", "64", "--nodes", "8", "--sweep-ranks", "100000"));
    assertEquals(1, linesLike("100000 +tree LL .*"));
    assertEquals(1, linesLike("8 +ring LL .*"));
  }

  @Test
  void hierarchicalIsExplained() {
    assertEquals(Commands.OK, run("--ranks", "16", "--nodes", "2", "--size", "1M"));
    assertEquals(1, linesLike("Hierarchical is .*neither NCCL nor the reference does.*"));
  }

  @Test
  void jsonHasAllEstimates() throws IOException {
    assertEquals(
        Commands.OK,
        run("--ranks", "16", "--nodes", "2", "--size", "1M", "--sweep-ranks", "32", "--json"));
    List<Double> seconds = new ArrayList<>();
    try (JsonParser parser = new JsonFactory().createParser(out.toByteArray())) {
      while (parser.nextToken() != null) {
        if (parser.currentToken() == JsonToken.FIELD_NAME
            && parser.currentName().equals("seconds")) {
          parser.nextToken();
          seconds.add(parser.getDoubleValue());
        }
      }
    }
    // Nine estimates of one size; the best for 2, 4, 8, 16 and 32 ranks at six sizes each.
    assertEquals(9 + 5 * RankSweep.SIZES.size(), seconds.size());
    assertTrue(seconds.stream().allMatch(value -> value > 6.6e-6 && value < 1), seconds::toString);
  }

  @Test
  @Tag("slow")
  void pageShowsEveryAlgorithm() throws IOException, InterruptedException {
    Path file = folder.resolve("page.html");
    assertEquals(Commands.OK, run("--ranks", "16", "--nodes", "2", "--html", file.toString()));
    assertEquals(file.toString(), lines().getLast());
    String question =
        """
        return [document.title, document.querySelector("dt").textContent, document.querySelectorAll("td.best").length, ...[...document.querySelectorAll("figure")].map(figure =>
          [...figure.querySelectorAll(".curve")].map(curve => curve.dataset.name).join())].join("\\n");
        """;
    String curves =
        Stream.of("ring", "tree", "hierarchical")
            .flatMap(name -> Stream.of(" Simple", " LL", " LL128").map(name::concat))
            .collect(Collectors.joining(","));
    assertEquals(
        new Visit(
            String.join("\n", lines().getFirst(), "fastest at 1 KiB", "13", curves, curves),
            List.of(),
            List.of()),
        HeadlessBrowser.in(folder).open(file, "", HeadlessBrowser.PHONE, question));
  }

  @Test
  void chartsShowSizesAndRanks() {
    Flags flags = new Flags();
    OptionValue.convert(new CommandLine(flags))
        .parseArgs("--ranks", "16", "--nodes", "2", "--sweep-ranks", "64");
    List<Chart> charts = HtmlPage.charts(Scenario.of(flags));
    assertEquals(
        List.of(
            "Time, 16 ranks, 8 per node",
            "Bus bandwidth, 16 ranks, 8 per node",
            "Time, 64 MiB, best protocol",
            "Bus bandwidth, 64 MiB, best protocol"),
        charts.stream().map(Chart::title).toList());
    assertEquals(
        List.of("ring Simple", "ring LL", "ring LL128", "tree Simple", "tree LL", "tree LL128"),
        names(charts.get(0)).subList(0, 6));
    assertEquals(9, names(charts.get(1)).size());
    assertEquals(List.of("ring", "tree", "hierarchical"), names(charts.get(2)));
    // From 1 KiB to 16 GiB; 2, 4, 8, 16, 32 and 64 ranks.
    assertEquals(25, charts.get(0).curves().getFirst().points().size());
    assertEquals(6, charts.get(3).curves().getFirst().points().size());
  }

  private static List<String> names(Chart chart) {
    return chart.curves().stream().map(Curve::name).toList();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          --ranks 10 --nodes 4             | --nodes 4 does not divide --ranks 10
          --ranks 1                        | --ranks is 1; it must be from 2 to 1000000
          --ranks 8 --nodes 0              | --nodes is 0; it must be from 1 to 1000000
          --ranks 4 --nodes 8              | --nodes 8 does not divide --ranks 4
          --inter 0GB/s                    | '0GB/s' is 0; a bandwidth must be positive
          --intra -1GB/s                   | '-1GB/s' is not a bandwidth
          --intra 450                      | '450' is not a bandwidth
          --inter 50parsecs/s              | '50parsecs/s' is not a bandwidth
          --latency 5                      | '5' is not a latency
          --latency -5us                   | '-5us' is not a latency
          --intra-latency 5h               | '5h' is not a latency
          --launch soon                    | 'soon' is not a latency
          --size 6                         | --size is 6; it must be a multiple of 4 bytes
          --size 1X                        | '1X' is not a size
          --size 65G                       | --size is 69793218560; it must be a multiple of 4 bytes, the size of a float32, up to 64G
          --channels 65                    | --channels is 65; it must be from 1 to 64
          --ranks 64 --sweep-ranks 32      | --sweep-ranks 32 is less than the 64 ranks of a node
          --html page.gif                  | 'page.gif' does not end in .html or .htm
          --colour                         | Unknown option: '--colour'
          """)
  void invalidArgumentsAreRejected(String arguments, String rule) {
    assertEquals(Commands.BAD_ARGUMENTS, run(arguments.split(" ")));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(rule), err::toString);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void missingDirectoryIsNamed() {
    Path missing = folder.resolve("none");
    assertEquals(Commands.BAD_ARGUMENTS, run("--html", missing.resolve("a.html").toString()));
    assertTrue(
        err.toString(StandardCharsets.UTF_8)
            .contains("cannot be written: there is no folder '" + missing + "'"),
        err::toString);
  }

  @Test
  void helpNamesEveryOption() {
    assertEquals(Commands.OK, run("--help"));
    for (String option : List.of("--ranks", "--sweep-ranks", "--intra-latency", "--html")) {
      assertTrue(out.toString(StandardCharsets.UTF_8).contains(option), option);
    }
  }
}
