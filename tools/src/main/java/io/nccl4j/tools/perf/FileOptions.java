package io.nccl4j.tools.perf;

import io.nccl4j.tools.cli.OptionValue;
import java.nio.file.Path;
import java.util.List;
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
      names = "--html",
      paramLabel = "FILE",
      description =
          "write charts, numbers and the configuration as one self-contained page; implies --percentiles, except with -G")
  Path html;

  @Option(
      names = "--compare",
      paramLabel = "FILE",
      description = "also show an earlier run, written by -J, in the page; repeatable")
  List<Path> compare = List.of();

  @Option(
      names = "--percentiles",
      description =
          "also time single operations after each row's iterations, 20 to 1000 in about a second, and show their percentiles in JSON and page")
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
    if (!compare.isEmpty() && html == null) {
      throw new BadArguments("--compare needs --html");
    }
    if (cycles == 0 && html != null) {
      throw new BadArguments("-N is 0, so the run never ends; --html is written at the end");
    }
    if (percentiles && graphs > 0) {
      throw new BadArguments(
          "--percentiles times single operations, which is impossible in a graph; -G must be 0");
    }
    if (percentiles && outputFile == null && html == null) {
      throw new BadArguments("--percentiles needs -J or --html");
    }
  }

  /** Checks the page's file. Only for the process that writes it: others may lack the folder. */
  void checkWritable() {
    try {
      if (html != null) {
        OptionValue.page(html.toString());
      }
    } catch (TypeConversionException e) {
      throw new BadArguments("--html: " + e.getMessage());
    }
  }
}
