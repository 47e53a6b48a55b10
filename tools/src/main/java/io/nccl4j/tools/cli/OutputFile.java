package io.nccl4j.tools.cli;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.stream.Stream;

/** Writes files, replacing existing ones, and deletes folders. Exceptions name the file. */
public final class OutputFile {
  private OutputFile() {}

  /** Writes the contents of a file piece by piece. */
  @FunctionalInterface
  public interface Source {
    /**
     * Writes the whole contents.
     *
     * @param writer the file's writer
     * @throws IOException if writing fails
     */
    void to(Writer writer) throws IOException;
  }

  /**
   * Writes a text in UTF-8.
   *
   * @param file the file
   * @param text the text
   * @throws IOException if it cannot be written
   */
  public static void write(Path file, String text) throws IOException {
    try {
      Files.write(file, text.getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      throw failure(file, e);
    }
  }

  /**
   * Replaces a file atomically by a text in UTF-8: a reader, and a program that is killed, sees
   * either the old or the new text.
   *
   * @param file the file, which must not be a device
   * @param text the text
   * @throws IOException if it cannot be written
   */
  public static void replace(Path file, String text) throws IOException {
    Path temporary = file.resolveSibling(file.getFileName() + ".tmp");
    try {
      Files.writeString(temporary, text);
      Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw failure(file, e);
    }
  }

  /**
   * Writes a text of any length in UTF-8.
   *
   * @param file the file
   * @param source writes the text
   * @throws IOException if it cannot be written
   */
  public static void write(Path file, Source source) throws IOException {
    try (Writer writer = Files.newBufferedWriter(file)) {
      source.to(writer);
    } catch (IOException e) {
      throw failure(file, e);
    }
  }

  /**
   * Deletes a folder with its contents, if it exists.
   *
   * @param folder the folder
   * @throws IOException if something cannot be deleted
   */
  public static void deleteFolder(Path folder) throws IOException {
    if (!Files.exists(folder)) {
      return;
    }
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.deleteIfExists(file);
      }
    } catch (IOException | UncheckedIOException e) {
      throw new IOException("cannot remove " + folder + ": " + e, e);
    }
  }

  private static IOException failure(Path file, IOException e) {
    return new IOException("cannot write " + file + ": " + e, e);
  }
}
