package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import picocli.CommandLine.Option;

/** The options {@code --html} and {@code --plot} of commands that report runs. */
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

  /** Created by picocli. */
  ReportOptions() {}

  /** {@return the page to write, or null} */
  public Path html() {
    return html;
  }

  /** {@return the picture to draw, or null} */
  public Path plot() {
    return plot;
  }
}
