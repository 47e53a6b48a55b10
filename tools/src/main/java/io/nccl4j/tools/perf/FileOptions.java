package io.nccl4j.tools.perf;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Consumer;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** The options that name files: what a run writes, and the earlier runs that it shows. */
final class FileOptions {
  @Option(
      names = {"-J", "--output_file"},
      paramLabel = "FILE",
      description = "write everything to a file too; it ends in .json, and one that exists is kept")
  Path outputFile;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      description = "draw time and bus bandwidth against size, as .svg or .png")
  Path plot;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      description =
          "write charts, numbers and what was measured as one self-contained page, with --percentiles unless -G is given")
  Path html;

  @Option(
      names = "--compare",
      paramLabel = "FILE",
      description =
          "show an earlier run, a file of -J, in the picture and the page too; repeatable")
  List<Path> compare = List.of();

  @Option(
      names = "--percentiles",
      description =
          "after the timed iterations also time single operations, 20 to 1000 of them in about a second, for their percentiles in JSON, picture and page")
  boolean percentiles;

  /**
   * Checks what needs no file to be checked.
   *
   * @param cycles how often the table is run; {@code -N}
   * @param graphs how often a graph is launched; {@code -G}
   */
  void check(int cycles, int graphs) {
    if (outputFile != null && !outputFile.toString().endsWith(".json")) {
      throw new BadArguments(
          "-J is " + outputFile + "; only JSON is written, to a name that ends in .json");
    }
    if (!compare.isEmpty() && plot == null && html == null) {
      throw new BadArguments("--compare is for --plot and --html, and neither is given");
    }
    if (cycles == 0 && (plot != null || html != null)) {
      throw new BadArguments("-N is 0, for ever; --plot and --html are written at the end");
    }
    if (percentiles && graphs > 0) {
      throw new BadArguments(
          "--percentiles times single operations; what a graph has captured cannot be: -G must be 0");
    }
    if (percentiles && outputFile == null && plot == null && html == null) {
      throw new BadArguments("--percentiles is shown by -J, --plot and --html, and none is given");
    }
  }

  /** Checks the files of the process that writes them; others may not even have the folders. */
  void checkWritable() {
    checkWritable("--plot", plot, OptionValue::picture);
    checkWritable("--html", html, OptionValue::page);
  }

  private static void checkWritable(String flag, Path file, Consumer<String> check) {
    try {
      if (file != null) {
        check.accept(file.toString());
      }
    } catch (TypeConversionException e) {
      throw new BadArguments(flag + ": " + e.getMessage());
    }
  }
}
