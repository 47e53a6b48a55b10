package io.nccl4j.examples.explain;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Runs the command, and opens its page in a browser where there is one. */
class ExplainTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return new Explain(
            new PrintStream(out, true, StandardCharsets.UTF_8),
            new PrintStream(err, true, StandardCharsets.UTF_8))
        .run(args);
  }

  private List<String> lines() {
    return out.toString(StandardCharsets.UTF_8).lines().map(String::strip).toList();
  }

  @Test
  void theToyRingSendsWhatTheFormulaSays() {
    assertEquals(Explain.OK, run("all_reduce", "--algo", "ring", "--ranks", "4"));
    assertTrue(lines().contains("bytes sent, in parts of the data; 2(n-1)/n is 1.500"));
    assertTrue(
        lines().stream().anyMatch(line -> line.matches("rank 2 +96  1\\.500")), lines()::toString);
    assertTrue(lines().contains("rank 3    1+2+3+0  2+3+0+1  3+0+1+2  0+1+2+3"));
  }

  @Test
  void realSizesNameTheirElements() {
    assertEquals(
        Explain.OK,
        run("all_reduce", "--algo", "ring", "--ranks", "2", "--size", "1M", "--channels", "1"));
    assertTrue(lines().contains("loop 0, slice 1, step 0"));
    assertTrue(
        lines().contains("rank 0 sends its own chunk 1 (elements 131,072 to 163,839) to rank 1"));
  }

  @Test
  void theRanksMayStandInAnotherOrder() {
    assertEquals(
        Explain.OK, run("all_reduce", "--algo", "ring", "--ranks", "3", "--order", "0,2,1"));
    assertTrue(lines().contains("rank 0 sends its own chunk 2 to rank 2"), lines()::toString);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          all_gather                          | 'all_gather' cannot be explained; all_reduce can
          all_reduce --ranks 0                | '0' is no whole number from 1 to 64
          all_reduce --ranks 65               | '65' is no whole number from 1 to 64
          all_reduce --algo star              | 'star' is none of ring, tree
          all_reduce --size 6                 | '6' is no positive multiple of 4 bytes
          all_reduce --order 0,1,2            | --order names 3 ranks, and there are 4
          all_reduce --ranks 2 --order 0,0    | ringOrders of channel 0
          all_reduce --ranks 64 --size 64G    | Take a smaller --size
          all_reduce --colour                 | Unknown option: '--colour'
          ''                                  | COLLECTIVE
          """)
  void whatCannotBeIsRefusedWithTheRule(String arguments, String rule) {
    String[] args = arguments.isEmpty() ? new String[0] : arguments.split(" ");
    assertEquals(Explain.BAD_ARGUMENTS, run(args));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(rule), err::toString);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void aFileThatCannotBeWrittenIsToldByItsName() {
    Path file = folder.resolve("none").resolve("page.html");
    assertEquals(Explain.FAILED, run("all_reduce", "--html", file.toString()));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(file.toString()));
  }

  @Test
  void thePageNeedsNothingElse() throws IOException {
    Path page = folder.resolve("page.html");
    assertEquals(Explain.OK, run("all_reduce", "--html", page.toString()));
    String html = Files.readString(page).replace("http://www.w3.org/2000/svg", "");
    assertFalse(html.contains("http"), "a reference to somewhere else");
    assertFalse(html.contains("src="), "a reference to another file");
    assertFalse(html.contains("@DATA@"), "no data");
  }

  @Test
  void aBrowserPlaysThePage() throws IOException, InterruptedException {
    Optional<Path> browser = browser();
    boolean required = "1".equals(System.getenv("REQUIRE_BROWSER"));
    assertTrue(browser.isPresent() || !required, "no Chromium is on the PATH (REQUIRE_BROWSER=1)");
    assumeTrue(browser.isPresent(), "no Chromium is on the PATH");
    Path page = folder.resolve("page.html");
    assertEquals(Explain.OK, run("all_reduce", "--html", page.toString()));
    // The second step of the second tree, and by way of the link both are chosen.
    String dom = dom(browser.get(), page.toUri() + "#2.1");
    for (String text :
        List.of(
            "step 1 (2 of 5)",
            "rank 1 folds chunk 0 of ranks 2 and 0 with its own: 2+1+0",
            "tree with root 3")) {
      String body = dom.substring(0, dom.indexOf("<script"));
      assertTrue(body.contains(text), () -> text + " is not on the page that the browser shows");
    }
  }

  private static Optional<Path> browser() {
    return Stream.of(System.getenv("PATH").split(":"))
        .flatMap(
            place ->
                Stream.of("chromium", "chromium-browser", "google-chrome")
                    .map(Path.of(place)::resolve))
        .filter(Files::isExecutable)
        .findFirst();
  }

  private String dom(Path browser, String url) throws IOException, InterruptedException {
    Path dom = folder.resolve("dom");
    Process process =
        new ProcessBuilder(
                browser.toString(),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--user-data-dir=" + folder.resolve("profile"),
                "--dump-dom",
                url)
            .redirectOutput(dom.toFile())
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    try {
      assertTrue(process.waitFor(120, TimeUnit.SECONDS), "the browser is still running");
    } finally {
      process.destroyForcibly();
    }
    return Files.readString(dom);
  }
}
