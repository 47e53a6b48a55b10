package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files are replaced, and failures name the file. */
class OutputFileTest {
  @TempDir Path folder;

  @Test
  void existingFileIsReplaced() throws IOException {
    Path file = folder.resolve("a.txt");
    OutputFile.write(file, "a longer text, \u00e9");
    assertEquals("a longer text, \u00e9", Files.readString(file));
    OutputFile.write(file, writer -> writer.write("short"));
    assertEquals("short", Files.readString(file));
    OutputFile.replace(file, "atomically");
    assertEquals("atomically", Files.readString(file));
  }

  @Test
  void failureNamesTheFile() {
    Path file = folder.resolve("none").resolve("a.txt");
    IOException text = assertThrows(IOException.class, () -> OutputFile.write(file, "a"));
    IOException written =
        assertThrows(IOException.class, () -> OutputFile.write(file, writer -> {}));
    IOException replaced = assertThrows(IOException.class, () -> OutputFile.replace(file, "a"));
    for (IOException e : new IOException[] {text, written, replaced}) {
      assertTrue(e.getMessage().startsWith("cannot write " + file + ": "), e.getMessage());
    }
  }
}
