package io.nccl4j.scripts;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.FieldSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tests that each script answers {@code --help} and refuses unknown arguments. The scripts run in a
 * copy that contains nothing else, which shows that they then need no other file and write none.
 */
class ScriptsTest {
  private static final Path ROOT = Path.of(System.getProperty("basedir", "."));
  private static final List<String> SCRIPTS =
      List.of(
          "emulation/build",
          "scripts/bench",
          "scripts/bundle",
          "scripts/fetch-native",
          "scripts/format",
          "scripts/generate-bindings",
          "scripts/release",
          "scripts/test",
          "scripts/lib/api-coverage",
          "scripts/lib/fault-campaign",
          "scripts/lib/fetch-torchrun",
          "scripts/lib/fuzz",
          "scripts/lib/test-summary",
          "src/test/native/build",
          "src/test/native/prepare");
  // They pass their arguments to a Java program, which the tests of the tools check.
  private static final Set<String> PROGRAMS = Set.of("scripts/all-reduce-perf", "scripts/nccl4j");
  private static final List<String> FOLDERS =
      List.of("emulation", "scripts", "scripts/lib", "scripts/lib/help", "src/test/native");

  @TempDir private Path copy;
  @TempDir private Path temp;

  /** The result of running a script. */
  private record Result(int status, String output, String errors) {}

  @BeforeEach
  void copyScripts() throws IOException {
    for (String directory : FOLDERS) {
      Files.createDirectories(copy.resolve(directory));
      for (Path file : filesIn(directory)) {
        Path target = copy.resolve(ROOT.relativize(file));
        Files.copy(file, target);
        assertTrue(target.toFile().setExecutable(Files.isExecutable(file)));
      }
    }
  }

  private static List<Path> filesIn(String directory) throws IOException {
    try (Stream<Path> all = Files.list(ROOT.resolve(directory))) {
      return all.filter(Files::isRegularFile).toList();
    }
  }

  @Test
  void everyScriptIsListed() throws IOException {
    Set<String> listed = new TreeSet<>(SCRIPTS);
    listed.addAll(PROGRAMS);
    Set<String> existing = new TreeSet<>();
    for (String directory : FOLDERS) {
      filesIn(directory).stream()
          .filter(Files::isExecutable)
          .forEach(file -> existing.add(ROOT.relativize(file).toString()));
    }
    assertEquals(listed, existing);
  }

  @ParameterizedTest
  @FieldSource("SCRIPTS")
  void helpPrintsUsageAndWritesNoFiles(String script) throws Exception {
    Set<String> before = tree();
    for (String option : List.of("--help", "-h")) {
      Result result = run(script, option);
      assertEquals(0, result.status(), result::errors);
      assertTrue(result.output().startsWith("usage: " + script), result::output);
      assertEquals("", result.errors());
    }
    assertEquals(before, tree());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "perf",
        "sweep",
        "report",
        "doctor",
        "ras",
        "flight",
        "trace",
        "explain",
        "simulate",
        "evidence"
      })
  void helpOfToolNeedsNoBuild(String tool) throws Exception {
    Set<String> before = tree();
    Result result = run("scripts/nccl4j", tool, "--help");
    assertEquals(0, result.status(), result::errors);
    assertTrue(result.output().contains("Usage: nccl4j " + tool + " "), result::output);
    assertTrue(run("scripts/nccl4j", "--help").output().contains("\n  " + tool + " "));
    assertEquals(before, tree());
  }

  @ParameterizedTest
  @FieldSource("SCRIPTS")
  void unknownArgumentIsNamedAndWritesNoFiles(String script) throws Exception {
    Set<String> before = tree();
    Result result = run(script, "--no-such-option");
    assertEquals(2, result.status(), result::errors);
    assertEquals("", result.output());
    String name = script.substring(script.lastIndexOf('/') + 1);
    assertTrue(
        result.errors().startsWith(name + ": unknown argument: --no-such-option"), result::errors);
    assertTrue(result.errors().contains("usage: " + script), result::errors);
    assertEquals(before, tree());
  }

  private Set<String> tree() throws IOException {
    Set<String> tree = new TreeSet<>();
    try (Stream<Path> all = Files.walk(copy)) {
      for (Path path : all.toList()) {
        tree.add(path + " of " + Files.getLastModifiedTime(path));
      }
    }
    return tree;
  }

  private Result run(String script, String... arguments) throws IOException, InterruptedException {
    Path output = temp.resolve("output");
    Path errors = temp.resolve("errors");
    List<String> command = new ArrayList<>(List.of(copy.resolve(script).toString()));
    command.addAll(List.of(arguments));
    Process process =
        new ProcessBuilder(command)
            .directory(temp.toFile())
            .redirectOutput(output.toFile())
            .redirectError(errors.toFile())
            .start();
    if (!process.waitFor(1, TimeUnit.MINUTES)) {
      process.destroyForcibly();
    }
    return new Result(process.waitFor(), Files.readString(output), Files.readString(errors));
  }
}
