package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * Charts as one picture, below each other and narrow enough for a phone. An SVG has its text as
 * text, which a browser shows in its own font without serifs.
 */
public final class Picture {
  private Picture() {}

  /**
   * Draws charts into a file, which is replaced where it exists. Charts without curves are left
   * out. Needs the module java.desktop, for which whoever takes the file's name from a user has to
   * look.
   *
   * @param charts the charts
   * @param file a name that ends in .svg or .png
   * @throws IOException if it cannot be written, or nothing is to be drawn
   */
  public static void write(List<Chart> charts, Path file) throws IOException {
    // Without a screen.
    System.setProperty("java.awt.headless", "true");
    List<Chart> drawn = charts.stream().filter(chart -> !chart.curves().isEmpty()).toList();
    if (drawn.isEmpty()) {
      throw new IOException("nothing is there to be drawn");
    }
    OutputFile.write(file, Drawing.of(drawn, file));
  }
}
