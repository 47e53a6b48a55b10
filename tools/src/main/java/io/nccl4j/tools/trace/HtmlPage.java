package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.Template;
import io.nccl4j.tools.plots.Page;
import java.io.IOException;
import java.util.List;

/** Formats a timeline as a self-contained page. */
final class HtmlPage {
  /** The most spans that a browser opens quickly. */
  static final int MAX_SPANS = 200_000;

  private HtmlPage() {}

  /**
   * Returns the page.
   *
   * @throws IllegalArgumentException if there are too many spans for a page
   */
  static String of(Timeline timeline) throws IOException {
    if (timeline.spans().size() > MAX_SPANS) {
      throw new IllegalArgumentException(
          "a page of %,d spans is too large, the limit is %,d; use -o and Perfetto instead"
              .formatted(timeline.spans().size(), MAX_SPANS));
    }
    return new Page(
            "Timeline",
            Summary.headline(timeline),
            Summary.clocks(timeline),
            "",
            Template.read(HtmlPage.class, "timeline.html", ChromeTrace.of(timeline)),
            List.of(Summary.operations(timeline), Summary.overlaps(timeline)))
        .html();
  }
}
