package io.nccl4j.examples.browser;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * A real Chromium without a screen, which opens one page at a time. A page is shown in a frame of
 * the width that is asked for, since a window of Chromium's is never narrower than 500 pixels.
 *
 * <p>Time runs ahead where a page waits: {@value #PAGE_SECONDS} seconds of it pass at once.
 */
public final class HeadlessBrowser {
  /** The width of a phone, in pixels. */
  public static final int PHONE = 360;

  /** The width of a window on a desk, in pixels. */
  public static final int DESK = 1200;

  private static final int PAGE_SECONDS = 60;
  private static final int DEADLINE_SECONDS = 120;

  private static final Pattern ANSWER = Pattern.compile("data-(answer|errors|requests)=\"(.*?)\"");

  private final Path program;
  private final Path folder;

  private HeadlessBrowser(Path program, Path folder) {
    this.program = program;
    this.folder = folder;
  }

  /**
   * What a page said when it was open.
   *
   * @param answer what the question came to: a text as it is, anything else as JSON
   * @param errors what went wrong in the page: exceptions, refused promises, errors on its console
   * @param requests the addresses that the page wanted to load something from, which is refused; of
   *     a self-contained page, none
   */
  public record Visit(String answer, List<String> errors, List<String> requests) {}

  /**
   * Finds the browser, or has the test skipped where none is on the PATH; with {@code
   * REQUIRE_BROWSER=1} that is a failure.
   *
   * @param folder where it may leave files until it is gone
   * @return the browser
   */
  public static HeadlessBrowser in(Path folder) {
    Optional<Path> program =
        Stream.of(System.getenv().getOrDefault("PATH", "").split(":"))
            .filter(place -> !place.isEmpty())
            .flatMap(
                place ->
                    Stream.of("chromium", "chromium-browser", "google-chrome")
                        .map(Path.of(place)::resolve))
            .filter(Files::isExecutable)
            .findFirst();
    assertFalse(
        program.isEmpty() && "1".equals(System.getenv("REQUIRE_BROWSER")),
        "REQUIRE_BROWSER is 1, and no chromium, chromium-browser or google-chrome is on the PATH");
    assumeTrue(program.isPresent(), "no Chromium is on the PATH");
    return new HeadlessBrowser(program.orElseThrow(), folder);
  }

  /**
   * Opens a page, waits until it is loaded and asks it something.
   *
   * @param page an HTML file with a head and a body
   * @param fragment what follows the # of its address, or an empty text
   * @param width how wide the page is shown, in pixels
   * @param question the body of an asynchronous JavaScript function that returns the answer
   * @return what the page said
   * @throws IOException if a file cannot be read or written, or the browser says nothing
   * @throws InterruptedException if the thread is interrupted meanwhile
   */
  public Visit open(Path page, String fragment, int width, String question)
      throws IOException, InterruptedException {
    Path visit = Files.createTempDirectory(folder, "visit");
    Files.writeString(visit.resolve("page.html"), withQuestion(Files.readString(page), question));
    Path frame = visit.resolve("frame.html");
    Files.writeString(frame, FRAME.formatted(width, fragment));
    return visit(dom(visit, frame));
  }

  private static String withQuestion(String html, String question) {
    return html.replaceFirst("<head>", Matcher.quoteReplacement("<head>" + LISTENING))
        .replaceFirst("</body>", Matcher.quoteReplacement(ASKING.formatted(question) + "</body>"));
  }

  private String dom(Path visit, Path frame) throws IOException, InterruptedException {
    Path dom = visit.resolve("dom");
    Path said = visit.resolve("said");
    Process process =
        new ProcessBuilder(
                program.toString(),
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--user-data-dir=" + visit.resolve("profile"),
                "--window-size=1400,1000",
                // As on a phone, where they take no room.
                "--hide-scrollbars",
                "--virtual-time-budget=" + TimeUnit.SECONDS.toMillis(PAGE_SECONDS),
                "--dump-dom",
                frame.toUri().toString())
            .redirectOutput(dom.toFile())
            .redirectError(said.toFile())
            .start();
    try {
      if (!process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS)) {
        throw new IOException(program + " is still running after " + DEADLINE_SECONDS + " s");
      }
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    String html = Files.readString(dom);
    if (!html.contains("data-answer=")) {
      throw new IOException("the page did not answer; " + program + " said: " + tail(said));
    }
    return html;
  }

  private static String tail(Path said) throws IOException {
    String text = Files.readString(said);
    return text.substring(Math.max(0, text.length() - 2000));
  }

  private static Visit visit(String dom) {
    String answer = "";
    List<String> errors = new ArrayList<>();
    List<String> requests = new ArrayList<>();
    Matcher matcher = ANSWER.matcher(dom);
    while (matcher.find()) {
      String text =
          new String(Base64.getDecoder().decode(matcher.group(2)), StandardCharsets.UTF_8);
      switch (matcher.group(1)) {
        case "answer" -> answer = text;
        case "errors" -> text.lines().forEach(errors::add);
        default -> text.lines().forEach(requests::add);
      }
    }
    return new Visit(answer, List.copyOf(errors), List.copyOf(requests));
  }

  /** The page around the page: what the inner one says ends up as attributes of this one. */
  private static final String FRAME =
      """
      <!DOCTYPE html>
      <html><head><meta charset="utf-8"></head><body>
      <script>
      const base64 = text => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
      addEventListener("message", event => {
        for (const [name, text] of Object.entries(event.data)) document.documentElement.dataset[name] = base64(text);
      });
      </script>
      <iframe src="page.html#%2$s" style="width:%1$dpx;height:740px;border:0"></iframe>
      </body></html>
      """;

  /** Stands before everything else in the page. */
  private static final String LISTENING =
      """
      <meta http-equiv="Content-Security-Policy" content="default-src 'unsafe-inline' data: blob:">
      <script>
      const errorsOfVisit = [], requestsOfVisit = [];
      document.addEventListener("securitypolicyviolation", event => requestsOfVisit.push(event.blockedURI));
      const heard = thing => errorsOfVisit.push(String(thing?.stack ?? thing).replaceAll("\\n", " "));
      addEventListener("error", event => heard(event.error ?? event.message ?? event.target), true);
      addEventListener("unhandledrejection", event => heard(event.reason));
      console.error = (...things) => heard(things.join(" "));
      </script>
      """;

  /** Stands after everything else in the page. */
  private static final String ASKING =
      """
      <script>
      addEventListener("load", async () => {
        let answer = "";
        try {
          answer = await (async () => { %s })();
        } catch (failure) {
          heard(failure);
        }
        // The browser tells of a refused promise after whatever is being done.
        await new Promise(done => setTimeout(done, 100));
        parent.postMessage({
          answer: typeof answer === "string" ? answer : JSON.stringify(answer) ?? "",
          errors: errorsOfVisit.join("\\n"),
          requests: requestsOfVisit.join("\\n")
        }, "*");
      });
      </script>
      """;
}
