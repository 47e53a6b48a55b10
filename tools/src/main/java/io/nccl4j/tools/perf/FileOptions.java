package io.nccl4j.tools.perf;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Consumer;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** The options that name files: the output of a run, and earlier runs to compare with. */
final class FileOptions {
  @Option(
      names = {"-J", "--output_file"},
      paramLabel = "FILE",
      description =
          "also write everything as JSON; the name ends in .json, an existing file is kept")
  Path outputFile;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      description = "draw time and bus bandwidth by size, as .svg or .png")
  Path plot;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      description =
          "write charts, numbers and the configuration as one self-contained page; implies --percentiles, except with -G")
  Path html;

  @Option(
      names = "--compare",
      paramLabel = "FILE",
      description = "also show an earlier run, written by -J, in the picture and page; repeatable")
  List<Path> compare = List.of();

  @Option(
      names = "--percentiles",
      description =
          "also time single operations after each row's iterations, 20 to 1000 in about a second, and show their percentiles in JSON, picture and page")
  boolean percentiles;

  /**
   * Checks the options without looking at the files.
   *
   * @param cycles the number of runs of the table; {@code -N}
   * @param graphs the number of graph launches; {@code -G}
   */
  void check(int cycles, int graphs) {
    if (outputFile != null && !outputFile.toString().endsWith(".json")) {
      throw new BadArguments("-J is " + outputFile + "; the name must end in .json");
    }
    if (!compare.isEmpty() && plot == null && html == null) {
      throw new BadArguments("--compare needs --plot or --html");
    }
    if (cycles == 0 && (plot != null || html != null)) {
      throw new BadArguments(
          "-N is 0, so the run never ends; --plot and --html are written at the end");
    }
    if (percentiles && graphs > 0) {
      throw new BadArguments(
          "--percentiles times single operations, which is impossible in a graph; -G must be 0");
    }
    if (percentiles && outputFile == null && plot == null && html == null) {
      throw new BadArguments("--percentiles needs -J, --plot or --html");
    }
  }

  /** Checks the files. Only for the process that writes them: others may lack the folders. */
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
