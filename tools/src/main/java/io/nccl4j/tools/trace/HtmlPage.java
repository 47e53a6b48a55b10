package io.nccl4j.tools.trace;

import java.io.IOException;
import java.io.InputStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/** A timeline as one self-contained page that draws it. */
final class HtmlPage {
  /** More spans make a page that no browser opens quickly. */
  static final int MOST_SPANS = 200_000;

  private static final String PLACE_OF_DATA = "@DATA@";

  private HtmlPage() {}

  /**
   * Returns the page.
   *
   * @throws IllegalArgumentException if there are too many spans for one
   */
  static String of(Timeline timeline) throws IOException {
    if (timeline.spans().size() > MOST_SPANS) {
      throw new IllegalArgumentException(
          "a page of %,d spans is too large, the most is %,d; open the trace in Perfetto"
              .formatted(timeline.spans().size(), MOST_SPANS));
    }
    StringWriter json = new StringWriter();
    ChromeTrace.write(timeline, json);
    // No data may end the script element that it stands in.
    return template().replace(PLACE_OF_DATA, json.toString().replace("<", "\\u003c"));
  }

  private static String template() throws IOException {
    try (InputStream in = HtmlPage.class.getResourceAsStream("timeline.html")) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
