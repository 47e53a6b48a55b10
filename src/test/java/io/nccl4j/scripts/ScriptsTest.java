package io.nccl4j.scripts;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
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

/**
 * Each script answers {@code --help}, and refuses what it does not know, in a copy of the
 * repository's scripts that has nothing else: what they would need is not needed for that, and what
 * they would write would be seen.
 */
class ScriptsTest {
  private static final Path ROOT = Path.of(System.getProperty("basedir", "."));
  private static final List<String> SCRIPTS =
      List.of(
          "scripts/api-coverage",
          "scripts/bench",
          "scripts/bundle",
          "scripts/fault-campaign",
          "scripts/fetch-native",
          "scripts/fetch-torchrun",
          "scripts/fuzz",
          "scripts/generate-bindings",
          "scripts/hello",
          "scripts/test-summary",
          "src/test/native/build",
          "src/test/native/prepare");
  // What this does not know is Maven's.
  private static final String TEST = "scripts/test";
  // They hand their arguments to a Java program, which the examples' own tests ask.
  private static final Set<String> PROGRAMS =
      Set.of(
          "scripts/all-reduce-perf",
          "scripts/bandwidth",
          "scripts/ddp-example",
          "scripts/ddp-simple",
          "scripts/doctor",
          "scripts/explain",
          "scripts/gpu-evidence",
          "scripts/nccl4j",
          "scripts/perf",
          "scripts/perf-report",
          "scripts/simulate",
          "scripts/spark-fit",
          "scripts/sweep",
          "scripts/trace");

  @TempDir private Path copy;
  @TempDir private Path temp;

  /** What a script has answered. */
  private record Answer(int status, String output, String errors) {}

  @BeforeEach
  void copyScripts() throws IOException {
    for (String folder : List.of("scripts", "src/test/native")) {
      Files.createDirectories(copy.resolve(folder));
      for (Path file : filesIn(folder)) {
        Path target = copy.resolve(ROOT.relativize(file));
        Files.copy(file, target);
        assertTrue(target.toFile().setExecutable(Files.isExecutable(file)));
      }
    }
  }

  private static List<Path> filesIn(String folder) throws IOException {
    try (Stream<Path> all = Files.list(ROOT.resolve(folder))) {
      return all.filter(Files::isRegularFile).toList();
    }
  }

  @Test
  void everyScriptIsKnownHere() throws IOException {
    Set<String> known = new TreeSet<>(SCRIPTS);
    known.addAll(PROGRAMS);
    known.add(TEST);
    Set<String> there = new TreeSet<>();
    for (String folder : List.of("scripts", "src/test/native")) {
      filesIn(folder).stream()
          .filter(Files::isExecutable)
          .forEach(file -> there.add(ROOT.relativize(file).toString()));
    }
    assertEquals(known, there);
  }

  @ParameterizedTest
  @FieldSource("SCRIPTS")
  void helpSaysHowItIsUsedAndTouchesNothing(String script) throws Exception {
    assertHelps(script);
  }

  @Test
  void theTestScriptHelpsToo() throws Exception {
    assertHelps(TEST);
  }

  private void assertHelps(String script) throws Exception {
    Set<String> before = tree();
    for (String option : List.of("--help", "-h")) {
      Answer answer = run(script, option);
      assertEquals(0, answer.status(), answer::errors);
      assertTrue(answer.output().startsWith("usage: " + script), answer::output);
      assertEquals("", answer.errors());
    }
    assertEquals(before, tree());
  }

  @ParameterizedTest
  @FieldSource("SCRIPTS")
  void whatItDoesNotKnowIsRefusedByNameAndTouchesNothing(String script) throws Exception {
    Set<String> before = tree();
    Answer answer = run(script, "--no-such-option");
    assertEquals(2, answer.status(), answer::errors);
    assertEquals("", answer.output());
    String name = script.substring(script.lastIndexOf('/') + 1);
    assertTrue(
        answer.errors().startsWith(name + ": unknown argument: --no-such-option"), answer::errors);
    assertTrue(answer.errors().contains("usage: " + script), answer::errors);
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

  private Answer run(String script, String argument) throws IOException, InterruptedException {
    Path output = temp.resolve("output");
    Path errors = temp.resolve("errors");
    Process process =
        new ProcessBuilder(copy.resolve(script).toString(), argument)
            .directory(temp.toFile())
            .redirectOutput(output.toFile())
            .redirectError(errors.toFile())
            .start();
    if (!process.waitFor(1, TimeUnit.MINUTES)) {
      process.destroyForcibly();
    }
    return new Answer(process.waitFor(), Files.readString(output), Files.readString(errors));
  }
}
