package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import picocli.CommandLine.Option;

/** The options of commands that show runs as a page and as a picture. */
public final class ReportOptions {
  @Option(
      names = "--html",
      paramLabel = "FILE",
      converter = OptionValue.Page.class,
      description = "write charts and tables as one self-contained page")
  private Path html;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      converter = OptionValue.Picture.class,
      description = "draw the charts as .svg or .png")
  private Path plot;

  /** Made by picocli. */
  ReportOptions() {}

  /** {@return the page to be written, or null} */
  public Path html() {
    return html;
  }

  /** {@return the picture to be drawn, or null} */
  public Path plot() {
    return plot;
  }
}
