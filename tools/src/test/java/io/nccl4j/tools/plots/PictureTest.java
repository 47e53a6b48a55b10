package io.nccl4j.tools.plots;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.tools.plots.Axis.Scale;
import io.nccl4j.tools.plots.Curve.Line;
import io.nccl4j.tools.plots.Curve.Point;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Pictures show all curves of their charts. */
class PictureTest {
  private static final List<Integer> COLOURS = List.of(0x0072b2, 0xd55e00, 0x009e73);
  private static final List<Line> LINES = List.of(Line.SOLID, Line.DASHED, Line.DOTTED);

  @TempDir Path folder;

  /** Returns a chart whose curves have the first colours and different line styles. */
  static Chart chart(String title, Scale y) {
    List<Curve> curves = new ArrayList<>();
    for (int i = 0; i < COLOURS.size(); i++) {
      int colour = i;
      curves.add(
          new Curve(
              "curve " + i,
              i,
              LINES.get(i),
              i == 0,
              IntStream.range(0, 11)
                  .mapToObj(x -> new Point(8 << (2 * x), (colour + 1) * (1.0 + x)))
                  .toList()));
    }
    return new Chart(title, new Axis("size", Scale.BYTES), new Axis("time (us)", y), curves);
  }

  @ParameterizedTest
  @ValueSource(strings = {"png", "PNG"})
  void chartsDoNotOverlap(String ending) throws IOException {
    Path file = folder.resolve("plot." + ending);
    Picture.write(
        List.of(
            chart("first", Scale.LOGARITHMIC),
            chart("second", Scale.LINEAR),
            chart("third", Scale.LINEAR)),
        file);
    BufferedImage image = ImageIO.read(file.toFile());
    assertNotNull(image);
    int height = image.getHeight() / 3;
    for (int place = 0; place < 3; place++) {
      BufferedImage part = image.getSubimage(0, place * height, image.getWidth(), height);
      for (int colour : COLOURS) {
        assertTrue(shows(part, colour), place + " has colour " + Integer.toHexString(colour));
      }
    }
  }

  private static boolean shows(BufferedImage image, int colour) {
    return IntStream.range(0, image.getHeight())
        .anyMatch(
            y ->
                IntStream.range(0, image.getWidth())
                    .anyMatch(x -> (image.getRGB(x, y) & 0xffffff) == colour));
  }

  @Test
  void svgHasAllColours() throws IOException {
    String svg = svg(List.of(chart("only", Scale.LINEAR)));
    assertTrue(svg.startsWith("<?xml") && svg.stripTrailing().endsWith("</svg>"));
    for (String colour : List.of("rgb(0,114,178)", "rgb(213,94,0)", "rgb(0,158,115)")) {
      assertTrue(svg.contains(colour), colour);
    }
    assertFalse(svg.contains("<image"), "a picture of pixels");
  }

  @Test
  void svgTextIsText() throws IOException {
    String svg = svg(List.of(chart("first", Scale.LOGARITHMIC), chart("second", Scale.LINEAR)));
    List<String> texts = texts(svg);
    List<String> words = texts.stream().filter(text -> !text.matches("[0-9].*")).toList();
    assertEquals(
        List.of("curve 0", "curve 1", "curve 2", "first", "second", "size", "time (us)"),
        words.stream().distinct().sorted().toList());
    assertEquals(5 * 2, words.stream().filter(text -> !text.matches("first|second")).count());
    // In each chart three curves, three legend samples, and the markers of one curve.
    assertEquals(2 * (3 + 3 + 11 + 1), svg.split("<path").length - 1);
  }

  @Test
  void svgAndPageUseTheSameUnits() throws IOException, InterruptedException {
    Chart chart = chart("only", Scale.LINEAR);
    Path page = folder.resolve("page.html");
    Files.writeString(page, new Page("a", List.of(), "", List.of(chart), List.of()).html());
    String labels =
        HeadlessBrowser.in(folder)
            .open(
                page,
                "",
                HeadlessBrowser.DESK,
                "return [...document.querySelectorAll('svg.plot text')].map(t => t.textContent).join('\\n');")
            .answer();
    List<String> units = List.of("B", "KiB", "MiB");
    assertEquals(units, units(texts(svg(List.of(chart)))));
    assertEquals(units, units(labels.lines().toList()));
  }

  private static List<String> units(List<String> texts) {
    return texts.stream()
        .filter(PictureTest::isSize)
        .map(text -> text.substring(text.indexOf(" ") + 1))
        .distinct()
        .toList();
  }

  private static boolean isSize(String text) {
    return text.matches("[0-9.,]+ [A-Za-z]+");
  }

  @ParameterizedTest
  @ValueSource(ints = {HeadlessBrowser.PHONE, HeadlessBrowser.DESK})
  void svgIsReadableAtAnyWidth(int width) throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    String svg = svg(List.of(chart("first", Scale.LOGARITHMIC), chart("second", Scale.LINEAR)));
    Files.writeString(
        page,
        "<!DOCTYPE html><html><head></head><body style='margin:0'>%s</body></html>"
            .formatted(svg.substring(svg.indexOf("<svg"))));
    String question =
        """
        const svg = document.querySelector("svg"), texts = [...svg.querySelectorAll("text")], scale = svg.getScreenCTM().a;
        const inside = box => box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= svg.getBoundingClientRect().bottom;
        return [
          document.documentElement.scrollWidth,
          texts.filter(text => !inside(text.getBoundingClientRect())).map(text => text.textContent).join(),
          texts.every(text => scale * parseFloat(getComputedStyle(text).fontSize) >= 10),
          [...new Set(texts.map(text => getComputedStyle(text).fontFamily))].join()
        ].join(" ");
        """;
    assertEquals(
        width + "  true sans-serif",
        HeadlessBrowser.in(folder).open(page, "", width, question).answer());
  }

  @Test
  void svgWithManyCurvesIsSmall() throws IOException {
    List<Curve> curves =
        IntStream.range(0, Curve.COLOURS)
            .mapToObj(i -> new Curve("choice " + i, i, Line.MIXED, true, thirds(25, i)))
            .toList();
    Chart chart =
        new Chart("some", new Axis("size", Scale.BYTES), new Axis("t", Scale.LOGARITHMIC), curves);
    int bytes = svg(List.of(chart, chart, chart)).length();
    assertTrue(bytes < 200_000, bytes + " bytes");
  }

  /** Returns points whose coordinates have many digits. */
  private static List<Point> thirds(int number, int i) {
    return IntStream.range(0, number).mapToObj(x -> new Point(8L << x, (i + x + 1) / 3.0)).toList();
  }

  private String svg(List<Chart> charts) throws IOException {
    Path file = folder.resolve("plot.svg");
    Picture.write(charts, file);
    return Files.readString(file);
  }

  private static List<String> texts(String svg) {
    return Pattern.compile("<text[^>]*>([^<]*)</text>")
        .matcher(svg)
        .results()
        .map(match -> match.group(1))
        .toList();
  }

  @ParameterizedTest
  @CsvSource({"1, 1", "1048576, 3", "1000, 0.0015"})
  void singlePointHasLabelsOnBothAxes(double x, double y) throws IOException {
    Curve curve = new Curve("some", 0, Line.SOLID, true, List.of(new Point(x, y)));
    Chart chart =
        new Chart(
            "one", new Axis("size", Scale.BYTES), new Axis("t", Scale.LOGARITHMIC), List.of(curve));
    List<String> texts = texts(svg(List.of(chart)));
    assertTrue(texts.stream().anyMatch(PictureTest::isSize), texts::toString);
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
  void emptyPictureIsRefused() {
    Path file = folder.resolve("none.svg");
    assertThrows(IOException.class, () -> Picture.write(List.of(), file));
    assertFalse(Files.exists(file));
  }
}
