package io.nccl4j.examples.browser;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.examples.browser.HeadlessBrowser.Visit;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A page that is well says so, and one that is not is not taken for one. */
class HeadlessBrowserTest {
  @TempDir Path folder;

  private Visit open(String body, String fragment, int width, String question)
      throws IOException, InterruptedException {
    Path page = folder.resolve("written.html");
    Files.writeString(
        page,
        "<!DOCTYPE html><html><head><meta charset=\"utf-8\"></head><body style=\"margin:0\">%s</body></html>"
            .formatted(body));
    return HeadlessBrowser.in(folder).open(page, fragment, width, question);
  }

  @Test
  void aPageAnswersAndIsAsWideAsAskedFor() throws IOException, InterruptedException {
    Visit visit =
        open(
            "<p id=p>gr\u00fcn</p>",
            "1.2",
            HeadlessBrowser.PHONE,
            "return [innerWidth, location.hash, document.getElementById('p').textContent];");
    assertEquals(new Visit("[360,\"#1.2\",\"gr\u00fcn\"]", List.of(), List.of()), visit);
  }

  @Test
  void whatComesLaterIsWaitedFor() throws IOException, InterruptedException {
    Visit visit =
        open(
            "",
            "",
            HeadlessBrowser.DESK,
            "await new Promise(done => setTimeout(done, 20000)); return 'after 20 s';");
    assertEquals("after 20 s", visit.answer());
  }

  @Test
  void whatGoesWrongIsTold() throws IOException, InterruptedException {
    String body =
        """
        <script>console.error("said"); Promise.reject(new Error("refused"));</script>
        <script>missing();</script>
        """;
    Visit visit = open(body, "", HeadlessBrowser.PHONE, "nothing.at.all");
    for (String error : List.of("said", "refused", "missing is not defined", "nothing is not")) {
      assertTrue(
          visit.errors().stream().anyMatch(told -> told.contains(error)),
          () -> error + " is not among " + visit.errors());
    }
  }

  @Test
  void whatAPageWantsToLoadIsTold() throws IOException, InterruptedException {
    Visit visit =
        open(
            "<img src=\"http://localhost/other.png\"><img src=\"data:image/gif;base64,R0lGODlhAQABAAAAADs=\">",
            "",
            HeadlessBrowser.PHONE,
            "return ''");
    assertEquals(List.of("http://localhost/other.png"), visit.requests());
  }
}
