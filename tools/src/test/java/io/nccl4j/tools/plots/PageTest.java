package io.nccl4j.tools.plots;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.plots.Axis.Scale;
import io.nccl4j.tools.plots.Curve.Line;
import io.nccl4j.tools.plots.Curve.Point;
import io.nccl4j.tools.plots.Table.Cell;
import io.nccl4j.tools.plots.Table.Kind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A page shows its charts and tables in a real browser, whatever text they contain. */
class PageTest {
  /** Text with a script, the end of one, and a placeholder of the template. */
  private static final String SPECIAL = "</script><script>boom()</script> @DATA@ & \"quoted\" '";

  /** Returns the widths, the points of each curve, and whether all text is inside the window. */
  private static final String PAGE_SUMMARY =
      """
      const inside = node => {
        const box = node.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth;
      };
      return [
        innerWidth, document.documentElement.scrollWidth,
        [...document.querySelectorAll("figure")].map(figure =>
          [figure.querySelector("figcaption").textContent,
           ...[...figure.querySelectorAll(".curve")].map(curve =>
             curve.dataset.name + ":" + curve.querySelectorAll("circle").length
               + ":" + curve.querySelector("path").getAttribute("d").split(/[ML]/).length)].join(",")).join(";"),
        [...document.querySelectorAll("figure svg text, figure .legend *")].every(inside)
      ].join(" ");
      """;

  private static final int LAPTOP = 1366;

  @TempDir Path folder;

  private Visit open(Page page, int width, String question)
      throws IOException, InterruptedException {
    Path file = folder.resolve("page.html");
    Files.writeString(file, page.html());
    return HeadlessBrowser.in(folder).open(file, "", width, question);
  }

  /** Returns a chart of three curves with different line styles, the first with markers. */
  private static Chart chart(String title, Scale y) {
    List<Line> lines = List.of(Line.SOLID, Line.DASHED, Line.DOTTED);
    List<Curve> curves =
        IntStream.range(0, lines.size())
            .mapToObj(i -> new Curve("curve " + i, i, lines.get(i), i == 0, points(i + 1)))
            .toList();
    return new Chart(title, new Axis("size", Scale.BYTES), new Axis("time (us)", y), curves);
  }

  private static List<Point> points(double slope) {
    return IntStream.range(0, 11).mapToObj(x -> new Point(8 << (2 * x), slope * (1 + x))).toList();
  }

  private static Page page(String text, Chart... charts) throws IOException {
    return new Page(
        text,
        Map.of(text, text),
        List.of(text, "a second line"),
        text,
        Chart.drawing(List.of(charts)),
        List.of(
            new Table(
                text,
                text,
                Stream.generate(() -> text).limit(12).toList(),
                List.of(Stream.generate(() -> new Cell(text, Kind.BEST)).limit(12).toList()))));
  }

  @ParameterizedTest
  @Tag("slow")
  @ValueSource(ints = {HeadlessBrowser.PHONE, HeadlessBrowser.DESK})
  void everyCurveFitsAnyWidth(int width) throws IOException, InterruptedException {
    String curves = "curve 0:11:12,curve 1:0:12,curve 2:0:12";
    Page page = page("a title", chart("first", Scale.LOGARITHMIC), chart("second", Scale.LINEAR));
    Visit visit = open(page, width, PAGE_SUMMARY);
    assertEquals(
        new Visit(
            "%d %d first,%s;second,%s true".formatted(width, width, curves, curves),
            List.of(),
            List.of()),
        visit);
  }

  @Test
  @Tag("slow")
  void textStaysText() throws IOException, InterruptedException {
    String question =
        """
        return [document.title, ...["h1", ".warning", "dt", "dd", "h2", "thead th", "tbody th", "td.best"]
          .map(name => document.querySelector(name).textContent)].join("\\n");
        """;
    Visit visit = open(page(SPECIAL), HeadlessBrowser.DESK, question);
    assertEquals(
        new Visit(
            String.join("\n", Stream.generate(() -> SPECIAL).limit(9).toList()),
            List.of(),
            List.of()),
        visit);
  }

  @Test
  @Tag("slow")
  void legendButtonTogglesCurve() throws IOException, InterruptedException {
    String question =
        """
        const button = document.querySelector(".legend button");
        const names = () => [...document.querySelectorAll("figure:first-of-type .curve")].map(curve => curve.dataset.name).join(",");
        const all = [button.textContent, names()];
        button.click();
        all.push(names(), button.getAttribute("aria-pressed"));
        button.click();
        all.push(names());
        return all.join(" | ");
        """;
    assertEquals(
        "curve 0 | curve 0,curve 1,curve 2 | curve 1,curve 2 | false | curve 0,curve 1,curve 2",
        open(page("a title", chart("first", Scale.LINEAR)), HeadlessBrowser.PHONE, question)
            .answer());
  }

  @Test
  @Tag("slow")
  void pointUnderPointerIsShownInNumbers() throws IOException, InterruptedException {
    String question =
        """
        const svg = document.querySelector("svg.plot"), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 12, clientY: box.top + 50 }));
        return document.querySelector(".note").textContent + " " + document.querySelector(".legend").innerText.replace(/\\s+/g, " ");
        """;
    assertEquals(
        " at 8 MiB curve 0 11 curve 1 22 curve 2 33",
        open(page("a title", chart("first", Scale.LINEAR)), HeadlessBrowser.PHONE, question)
            .answer());
  }

  @ParameterizedTest
  @Tag("slow")
  @ValueSource(ints = {2, 3, 4})
  void lastChartOfEachLineEndsAtTheMargin(int charts) throws IOException, InterruptedException {
    Chart[] all =
        Stream.generate(() -> chart("some", Scale.LINEAR)).limit(charts).toArray(Chart[]::new);
    String question =
        """
        const boxes = [...document.querySelectorAll("figure")].map(figure => figure.getBoundingClientRect());
        const right = document.getElementById("charts").getBoundingClientRect().right;
        return boxes.filter((box, i) => boxes[i + 1]?.top !== box.top).every(box => Math.abs(box.right - right) < 1);
        """;
    for (int width : new int[] {HeadlessBrowser.PHONE, HeadlessBrowser.DESK, LAPTOP}) {
      assertEquals("true", open(page("a title", all), width, question).answer(), "width " + width);
    }
  }

  @Test
  @Tag("slow")
  void textContrastsInLightAndDark() throws IOException, InterruptedException {
    // WCAG 2 requires 4.5 for small text.
    String question =
        """
        const luminance = color => color.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255)
          .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
          .reduce((sum, part, i) => sum + part * [.2126, .7152, .0722][i], 0);
        const style = node => getComputedStyle(node), low = [];
        for (const scheme of ["light", "dark"]) {
          document.documentElement.style.colorScheme = scheme;
          const back = luminance(style(document.body).backgroundColor);
          if (back > .5 !== (scheme === "light")) low.push(scheme);
          for (const name of ["body", ".warning", "dt", "dd", ".soft", "thead th", "tbody th", ".legend span"]) {
            const text = luminance(style(document.querySelector(name)).color);
            if ((Math.max(text, back) + .05) / (Math.min(text, back) + .05) < 4.5) low.push(scheme + " " + name);
          }
        }
        return low;
        """;
    assertEquals(
        new Visit("[]", List.of(), List.of()),
        open(page("a title", chart("first", Scale.LINEAR)), HeadlessBrowser.PHONE, question));
  }

  @Test
  @Tag("slow")
  void spreadIsDrawnInsideTheChart() throws IOException, InterruptedException {
    Curve curve =
        new Curve(
            "some", 0, Line.SOLID, true, List.of(new Point(8, 10), new Point(16, 10, 1, 1000)));
    Chart chart =
        new Chart(
            "one", new Axis("size", Scale.BYTES), new Axis("t", Scale.LOGARITHMIC), List.of(curve));
    String question =
        """
        const lines = [...document.querySelectorAll(".curve line")], [line] = lines;
        const [least, most] = ["y1", "y2"].map(name => +line.getAttribute(name));
        return [lines.length, least > most, most >= 24].join(" ");
        """;
    assertEquals("1 true true", open(page("a", chart), HeadlessBrowser.PHONE, question).answer());
  }

  @ParameterizedTest
  @Tag("slow")
  @CsvSource({"1, 1, B", "1048576, 3, MiB", "1000, 0.0015, B"})
  void singlePointHasLabelsOnBothAxes(double x, double y, String unit)
      throws IOException, InterruptedException {
    Curve curve = new Curve("some", 0, Line.SOLID, true, List.of(new Point(x, y)));
    Chart chart =
        new Chart(
            "one", new Axis("size", Scale.BYTES), new Axis("t", Scale.LOGARITHMIC), List.of(curve));
    String question =
        "return [...document.querySelectorAll('svg.plot text')].map(t => t.textContent).join('\\n');";
    List<String> texts =
        open(page("a", chart), HeadlessBrowser.PHONE, question).answer().lines().toList();
    assertTrue(texts.stream().anyMatch(text -> text.matches("[0-9.]+ " + unit)), texts::toString);
    assertTrue(texts.stream().anyMatch(text -> text.matches("[0-9.]+")), texts::toString);
  }

  @Test
  void nonPositiveValuesAreOmittedOnLogarithmicAxis() {
    Chart chart =
        new Chart(
            "some",
            new Axis("x", Scale.BYTES),
            new Axis("y", Scale.LINEAR),
            List.of(
                new Curve(
                    "some",
                    0,
                    Line.SOLID,
                    true,
                    List.of(new Point(0, 1), new Point(8, 0), new Point(16, Double.NaN))),
                new Curve("none", 1, Line.SOLID, true, List.of(new Point(0, 1)))));
    assertEquals(
        List.of(new Curve("some", 0, Line.SOLID, true, List.of(new Point(8, 0)))), chart.curves());
  }

  @Test
  void pageIsSelfContained() throws IOException {
    String html =
        page("a title", chart("first", Scale.LINEAR))
            .html()
            .replace("http://www.w3.org/2000/svg", "");
    assertFalse(html.contains("http"), "a reference to somewhere else");
    assertFalse(html.contains("src="), "a reference to another file");
  }

  @Test
  void rowOfWrongLengthIsRefused() {
    assertThrows(
        IllegalArgumentException.class,
        () -> new Table("t", "", List.of("a", "b"), List.of(List.of(Cell.of("1")))));
  }
}
