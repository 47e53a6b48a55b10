package io.nccl4j.tools.cli;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/**
 * Files that a command writes, in place of those that exist, and folders that it has made. What
 * fails names the file.
 */
public final class OutputFile {
  private OutputFile() {}

  /** What writes a file bit by bit. */
  @FunctionalInterface
  public interface Source {
    /**
     * Writes all of it.
     *
     * @param writer where to
     * @throws IOException if that fails
     */
    void to(Writer writer) throws IOException;
  }

  /**
   * Writes a text.
   *
   * @param file the file
   * @param text the text
   * @throws IOException if it cannot be written
   */
  public static void write(Path file, String text) throws IOException {
    write(file, text.getBytes(StandardCharsets.UTF_8));
  }

  /**
   * Writes bytes.
   *
   * @param file the file
   * @param bytes the bytes
   * @throws IOException if they cannot be written
   */
  public static void write(Path file, byte[] bytes) throws IOException {
    try {
      Files.write(file, bytes);
    } catch (IOException e) {
      throw failure(file, e);
    }
  }

  /**
   * Writes a text of any length.
   *
   * @param file the file
   * @param source what writes it
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
   * Deletes a folder with all that is in it, where it is there.
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
