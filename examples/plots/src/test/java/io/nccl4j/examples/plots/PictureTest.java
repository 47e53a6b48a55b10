package io.nccl4j.examples.plots;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.examples.plots.Axis.Scale;
import io.nccl4j.examples.plots.Curve.Line;
import io.nccl4j.examples.plots.Curve.Point;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Charts become pictures that show all of their curves. */
class PictureTest {
  private static final List<Integer> COLOURS = List.of(0x0072b2, 0xd55e00, 0x009e73);
  private static final List<Line> LINES = List.of(Line.SOLID, Line.DASHED, Line.DOTTED);

  @TempDir Path folder;

  /** Returns a chart with a curve of each of the first colours and each kind of line. */
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
  void everyChartHasAPlaceOfItsOwn(String ending) throws IOException {
    Path file = folder.resolve("plot." + ending);
    Picture.write(
        List.of(
            chart("first", Scale.LOGARITHMIC),
            chart("second", Scale.LINEAR),
            chart("third", Scale.LINEAR)),
        file);
    BufferedImage image = ImageIO.read(file.toFile());
    assertNotNull(image);
    int width = image.getWidth() / 2;
    int height = image.getHeight() / 2;
    for (int place = 0; place < 3; place++) {
      BufferedImage part = image.getSubimage(place % 2 * width, place / 2 * height, width, height);
      for (int colour : COLOURS) {
        assertTrue(shows(part, colour), place + " has colour " + Integer.toHexString(colour));
      }
    }
    assertFalse(shows(image.getSubimage(width, height, width, height), COLOURS.getFirst()));
  }

  private static boolean shows(BufferedImage image, int colour) {
    return IntStream.range(0, image.getHeight())
        .anyMatch(
            y ->
                IntStream.range(0, image.getWidth())
                    .anyMatch(x -> (image.getRGB(x, y) & 0xffffff) == colour));
  }

  @Test
  void anSvgIsOneToo() throws IOException {
    Path file = folder.resolve("plot.svg");
    Picture.write(List.of(chart("only", Scale.LINEAR)), file);
    String svg = Files.readString(file);
    assertTrue(svg.startsWith("<?xml") && svg.stripTrailing().endsWith("</svg>"));
    for (String colour : List.of("rgb(0,114,178)", "rgb(213,94,0)", "rgb(0,158,115)")) {
      assertTrue(svg.contains(colour), colour);
    }
    assertFalse(svg.contains("<image"), "a picture of pixels");
  }

  @Test
  void whatHasNoPlaceOnALogarithmicAxisIsLeftOut() {
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
  void nothingIsNoPicture() {
    Path file = folder.resolve("none.svg");
    assertThrows(IOException.class, () -> Picture.write(List.of(), file));
    assertFalse(Files.exists(file));
  }
}
