package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine.TypeConversionException;

class OptionValueTest {
  private enum Colour {
    RED,
    GREEN
  }

  @TempDir Path folder;

  private static void refused(String message, Executable conversion) {
    assertEquals(message, assertThrows(TypeConversionException.class, conversion).getMessage());
  }

  @Test
  void wholeNumberWithinBoundsIsAccepted() {
    assertEquals(-1, OptionValue.whole("-1", -1, 4));
    assertEquals(4, OptionValue.whole("4", -1, 4));
  }

  @ParameterizedTest
  @ValueSource(strings = {"5", "-2", "", "one", "1.0", "0x1", "1000000000000"})
  void invalidNumberIsQuotedWithBounds(String text) {
    refused(
        "'" + text + "' is not a whole number from -1 to 4", () -> OptionValue.whole(text, -1, 4));
  }

  @Test
  void unknownEnumNameIsRefused() {
    assertEquals(Colour.GREEN, OptionValue.named(Colour.class, "green"));
    refused("'blue' is not one of red, green", () -> OptionValue.named(Colour.class, "blue"));
  }

  @Test
  void parserFailureKeepsItsMessage() {
    assertEquals(2048L, OptionValue.parsed("2K", ByteSize::parse));
    refused(
        "'big' is not a size: a number of bytes, optionally with K, M or G (1024-based)",
        () -> OptionValue.parsed("big", ByteSize::parse));
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
