package io.nccl4j.adapters;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** A program that the README of the adapters shows. */
public final class ReadmeProgram {
  private ReadmeProgram() {}

  /** Checks that the README shows the source of a class, without its package. */
  public static void checkShown(Class<?> program) throws IOException {
    Path file = Path.of("src/test/java", program.getName().replace('.', '/') + ".java");
    String source = Files.readString(file);
    String shown = source.substring(source.indexOf("import "));
    assertTrue(Files.readString(Path.of("../README.md")).contains(shown), file + " differs");
  }

  /** Runs a program; returns the lines that it prints, sorted. */
  public static List<String> run(Runnable program) {
    PrintStream standard = System.out;
    ByteArrayOutputStream printed = new ByteArrayOutputStream();
    System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
    try {
      program.run();
    } finally {
      System.setOut(standard);
    }
    return printed.toString(StandardCharsets.UTF_8).lines().sorted().toList();
  }
}
