package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.TypeConversionException;

class OptionValueTest {
  private enum Colour {
    RED,
    GREEN
  }

  private static final class Flags {
    @Option(names = {"-n", "--number"})
    @Within(least = -1, most = 4)
    int number;

    @Option(names = "--list", split = ",")
    @Within(least = 1)
    List<Integer> list;

    @Option(names = "--size")
    long size;

    @Option(names = "--colour")
    Colour colour;
  }

  @TempDir Path folder;

  private static void refused(String message, Executable conversion) {
    assertEquals(message, assertThrows(TypeConversionException.class, conversion).getMessage());
  }

  private static Flags parsed(String... args) {
    Flags flags = new Flags();
    CommandLine line = OptionValue.convert(new CommandLine(flags));
    line.parseArgs(args);
    OptionValue.checkBounds(line);
    return flags;
  }

  @Test
  void valuesAreConverted() {
    Flags flags = parsed("-n", "-1", "--list", "1,010", "--size", "2K", "--colour", "green");
    assertEquals(-1, flags.number);
    assertEquals(List.of(1, 10), flags.list);
    assertEquals(2048, flags.size);
    assertEquals(Colour.GREEN, flags.colour);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          -n 5          | -n is 5; it must be from -1 to 4
          --number=-2   | -n is -2; it must be from -1 to 4
          --list 1,0    | --list is 0; it must be 1 or more
          -n one        | 'one' is not a whole number
          -n 0x1        | '0x1' is not a whole number
          -n 1.0        | '1.0' is not a whole number
          --size big    | 'big' is not a size: a number of bytes, optionally with K, M or G (1024-based)
          --colour blue | expected one of [RED, GREEN] (case-insensitive) but was 'blue'
          """)
  void invalidValueIsRefusedWithRule(String args, String message) {
    ParameterException e =
        assertThrows(ParameterException.class, () -> parsed(args.split(" ", -1)));
    assertTrue(e.getMessage().endsWith(message), e.getMessage());
  }

  @Test
  void newAndExistingFilesAreAccepted() throws IOException {
    Path file = folder.resolve("a.HTML");
    assertEquals(file, OptionValue.output(file.toString(), ".html", ".htm"));
    Files.createFile(file);
    assertEquals(file, OptionValue.output(file.toString(), ".html", ".htm"));
    assertEquals(Path.of("b"), OptionValue.output("b"));
  }

  @Test
  void unwritableFileIsRefusedWithReason() {
    Path none = folder.resolve("none");
    refused(
        "'a.gif' does not end in .html or .htm",
        () -> OptionValue.output("a.gif", ".html", ".htm"));
    refused(
        "'%s' cannot be written: there is no folder '%s'".formatted(none.resolve("a.html"), none),
        () -> OptionValue.output(none.resolve("a.html").toString(), ".html"));
    refused(
        "'" + folder + "' cannot be written: it is a folder",
        () -> OptionValue.output(folder.toString()));
  }
}
