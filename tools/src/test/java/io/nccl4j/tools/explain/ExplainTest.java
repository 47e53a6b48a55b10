package io.nccl4j.tools.explain;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.cli.Commands;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine;

/** Runs the command, and opens its page in a browser if one is installed. */
class ExplainTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return Explain.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        args);
  }

  private List<String> lines() {
    return out.toString(StandardCharsets.UTF_8).lines().map(String::strip).toList();
  }

  @Test
  void toyRingMatchesTheFormula() {
    assertEquals(Commands.OK, run("all_reduce", "--algo", "ring", "--ranks", "4"));
    assertTrue(lines().contains("bytes sent, and their ratio to the data; 2(n-1)/n is 1.500"));
    assertTrue(
        lines().stream().anyMatch(line -> line.matches("rank 2 +96  1\\.500")), lines()::toString);
    assertTrue(lines().contains("rank 3    1+2+3+0  2+3+0+1  3+0+1+2  0+1+2+3"));
  }

  @Test
  void realSizesNameTheirElements() {
    assertEquals(
        Commands.OK,
        run("all_reduce", "--algo", "ring", "--ranks", "2", "--size", "1M", "--channels", "1"));
    assertTrue(lines().contains("loop 0, slice 1, step 0"));
    assertTrue(
        lines().contains("rank 0 sends its own chunk 1 (elements 131,072 to 163,839) to rank 1"));
  }

  @Test
  void ringOrderIsConfigurable() {
    assertEquals(
        Commands.OK, run("all_reduce", "--algo", "ring", "--ranks", "3", "--order", "0,2,1"));
    assertTrue(lines().contains("rank 0 sends its own chunk 2 to rank 2"), lines()::toString);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          all_gather                          | 'all_gather' cannot be explained; all_reduce can
          all_reduce --ranks 0                | --ranks is 0; it must be from 1 to 64
          all_reduce --ranks 65               | --ranks is 65; it must be from 1 to 64
          all_reduce --algo star              | expected one of [RING, TREE]
          all_reduce --size 6                 | --size is 6; it must be a positive multiple of 4 bytes
          all_reduce --order 0,1,2            | --order is 0,1,2; it must have every rank from 0 to 3 once
          all_reduce --ranks 2 --order 0,0    | --order is 0,0; it must have every rank from 0 to 1 once
          all_reduce --order 0,b              | 'b' is not a whole number
          all_reduce --order 0,1,2,3 --algo tree  | --order is for the ring, and --algo is tree
          all_reduce --ranks-per-node 2 --algo ring | --ranks-per-node is for trees, and --algo is ring
          all_reduce --channels 4             | --channels is for --size
          all_reduce --protocol ll            | --protocol is for --size
          all_reduce --ranks 64 --size 64G    | use a smaller --size
          all_reduce --colour                 | Unknown option: '--colour'
          ''                                  | COLLECTIVE
          """)
  void invalidArgumentsAreRejected(String arguments, String rule) {
    String[] args = arguments.isEmpty() ? new String[0] : arguments.split(" ");
    assertEquals(Commands.BAD_ARGUMENTS, run(args));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(rule), err::toString);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void missingDirectoryIsNamed() {
    Path missing = folder.resolve("none");
    Path file = missing.resolve("page.html");
    assertEquals(Commands.BAD_ARGUMENTS, run("all_reduce", "--html", file.toString()));
    assertEquals(
        "explain: Invalid value for option '--html': '%s' cannot be written: there is no folder '%s'; see --help"
            .formatted(file, missing),
        err.toString(StandardCharsets.UTF_8).strip());
  }

  @ParameterizedTest
  @ValueSource(strings = {"allreduce", "AllReduce", "all-reduce"})
  void collectiveIsFoundInEverySpelling(String spelling) {
    assertEquals(Commands.OK, run(spelling, "--ranks", "2", "--algo", "ring"));
    assertEquals("all_reduce, ring, 2 ranks, 32 bytes each (8 float32)", lines().getFirst());
  }

  @Test
  void oneRankIsSingular() {
    assertEquals(Commands.OK, run("all_reduce", "--ranks", "1", "--algo", "ring"));
    assertEquals("all_reduce, ring, 1 rank, 16 bytes each (4 float32)", lines().getFirst());
  }

  @Test
  void pageIsSelfContained() throws IOException {
    Path page = folder.resolve("page.html");
    assertEquals(Commands.OK, run("all_reduce", "--html", page.toString()));
    String html = Files.readString(page).replace("http://www.w3.org/2000/svg", "");
    assertFalse(html.contains("http"), "a reference to somewhere else");
    assertFalse(html.contains("src="), "a reference to another file");
    assertFalse(html.contains("@DATA@"), "no data");
  }

  /** Steps through each view, plays it, and reads the table of bytes. */
  private static final String PLAY =
      """
      const $ = id => document.getElementById(id), views = [];
      for (const button of document.querySelectorAll("#views button")) {
        button.click();
        const steps = [];
        for (let last = ""; $("where").textContent !== last; $("next").click()) {
          last = $("where").textContent;
          steps.push($("says").children.length);
        }
        $("play").click();
        await new Promise(done => setTimeout(done, 1200 * (steps.length + 1)));
        views.push([
          button.textContent,
          steps.join(","),
          $("play").textContent,
          $("where").textContent.replace(/.*\\(/, "("),
          [...document.querySelectorAll("#bytes td:nth-child(2)")].map(cell => cell.textContent).join(" ")
        ].join(" | "));
      }
      return views.join("\\n");
      """;

  @ParameterizedTest
  @Tag("slow")
  @ValueSource(ints = {1, 2, 5})
  void browserPlaysThePage(int ranks) throws IOException, InterruptedException {
    String[] args = {"all_reduce", "--ranks", "" + ranks, "--html", "" + folder.resolve("a.html")};
    assertEquals(Commands.OK, run(args));
    Visit visit =
        HeadlessBrowser.in(folder).open(folder.resolve("a.html"), "", HeadlessBrowser.DESK, PLAY);
    assertEquals(new Visit(expectedViews(args), List.of(), List.of()), visit);
  }

  /** Returns the expected contents of the page: steps, moves, and bytes of the schedule. */
  private static String expectedViews(String... args) {
    Flags flags = CommandLine.populateCommand(new Flags(), args);
    List<String> views = new ArrayList<>();
    for (Algorithm algorithm : Algorithm.values()) {
      Explanation explanation = Explanation.of(algorithm, flags);
      for (ChannelTrace trace : explanation.traces()) {
        int steps = trace.frames().size();
        views.add(
            String.join(
                " | ",
                explanation.name(trace),
                steps == 0
                    ? "0"
                    : trace.frames().stream()
                        .map(frame -> "" + frame.moves().size())
                        .collect(Collectors.joining(",")),
                "play",
                "(" + steps + " of " + steps + ")",
                IntStream.range(0, flags.ranks)
                    .mapToObj(
                        rank ->
                            String.format(
                                Locale.ROOT, "%,d", explanation.schedule().bytesSent(rank)))
                    .collect(Collectors.joining(" "))));
      }
    }
    return String.join("\n", views);
  }

  @Test
  @Tag("slow")
  void linkOpensAStepOfAView() throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    assertEquals(Commands.OK, run("all_reduce", "--html", page.toString()));
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(page, "2.1", HeadlessBrowser.DESK, "return document.body.innerText");
    for (String text :
        List.of(
            "step 1 (2 of 5)",
            "rank 1 reduces chunk 0 from ranks 2 and 0 with its own: 2+1+0",
            "tree with root 3")) {
      assertTrue(visit.answer().contains(text), () -> text + " is not in " + visit.answer());
    }
  }

  @Test
  @Tag("slow")
  void tableOfEightRanksFitsALaptop() throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    assertEquals(Commands.OK, run("all_reduce", "--ranks", "8", "--html", page.toString()));
    String question =
        """
        const table = document.getElementById("holds"), around = table.parentElement;
        return [
          document.getElementById("where").textContent,
          [...table.querySelectorAll("tr:last-child td")].map(cell => cell.textContent).join(" "),
          around.scrollWidth <= around.clientWidth, table.getBoundingClientRect().bottom <= 768
        ].join("\\n");
        """;
    String expected =
        """
        step 14 (15 of 15)
        1+2+3+4+5+6+7+0 2+3+4+5+6+7+0+1 3+4+5+6+7+0+1+2 4+5+6+7+0+1+2+3 5+6+7+0+1+2+3+4 6+7+0+1+2+3+4+5 7+0+1+2+3+4+5+6 0+1+2+3+4+5+6+7
        true
        true""";
    assertEquals(
        new Visit(expected, List.of(), List.of()),
        HeadlessBrowser.in(folder).open(page, "0.14", 1366, question));
  }

  @ParameterizedTest
  @Tag("slow")
  @ValueSource(strings = {"--ranks 4", "--ranks 64", "--ranks 8 --size 1M"})
  void pageFitsAPhone(String arguments) throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    List<String> args = new ArrayList<>(List.of("all_reduce", "--html", page.toString()));
    args.addAll(List.of(arguments.split(" ")));
    assertEquals(Commands.OK, run(args.toArray(String[]::new)), err::toString);
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(
                page,
                "",
                HeadlessBrowser.PHONE,
                "return innerWidth + ' ' + document.documentElement.scrollWidth");
    assertEquals(new Visit("360 360", List.of(), List.of()), visit);
  }
}
