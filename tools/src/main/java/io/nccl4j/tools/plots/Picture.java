package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * Writes charts as one picture, below each other and narrow enough for a phone. Text in an SVG
 * stays text, which a browser shows in its own sans-serif font.
 */
public final class Picture {
  private Picture() {}

  /**
   * Draws charts into a file, replacing an existing one. Charts without curves are omitted. Needs
   * the module java.desktop, whose presence the caller has to check.
   *
   * @param charts the charts
   * @param file the file, whose name ends in .svg or .png
   * @throws IOException if it cannot be written, or there is nothing to draw
   */
  public static void write(List<Chart> charts, Path file) throws IOException {
    System.setProperty("java.awt.headless", "true");
    List<Chart> drawn = charts.stream().filter(chart -> !chart.curves().isEmpty()).toList();
    if (drawn.isEmpty()) {
      throw new IOException("there is nothing to draw");
    }
    OutputFile.write(file, Drawing.of(drawn, file));
  }
}
