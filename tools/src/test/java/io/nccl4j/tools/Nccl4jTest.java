package io.nccl4j.tools;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The command that starts all tools. */
@Tag("slow")
class Nccl4jTest {
  private static FinishedProgram run(String... args) throws Exception {
    List<String> command =
        FinishedProgram.java("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", Nccl4j.class.getName());
    command.addAll(List.of(args));
    return FinishedProgram.run(Map.of(), command);
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
  void toolPrintsItsHelp(String tool) throws Exception {
    FinishedProgram ended = run(tool, "--help");
    assertEquals(0, ended.status(), ended.output());
    // The script prints the page.
    assertEquals(page(tool), ended.out());
    Set<String> shown = shownOptions(tool);
    assertFalse(shown.isEmpty(), "no page shows an option of " + tool);
    shown.removeAll(options(ended.output()));
    if (tool.equals("sweep")) { // which passes other flags on
      shown.removeAll(options(run("perf", "--help").output()));
    }
    assertEquals(Set.of(), shown, "options that pages show");
  }

  @Test
  void toolsAreListed() throws Exception {
    assertEquals(page("nccl4j"), run("--help").out());
  }

  private static String page(String tool) throws IOException {
    return Files.readString(Checkout.ROOT.resolve("scripts/lib/help/" + tool + ".txt"));
  }

  /** Returns the long options with which pages show a tool. */
  private static Set<String> shownOptions(String tool) throws IOException {
    Pattern command =
        Pattern.compile(
            "scripts/(?:%snccl4j %s)( [^#`\n]*)"
                .formatted(tool.equals("perf") ? "all-reduce-perf|" : "", tool));
    Set<String> options = new TreeSet<>();
    for (String name : List.of("README.md", "docs", "examples", "scripts/lib")) {
      try (Stream<Path> files = Files.walk(Checkout.ROOT.resolve(name))) {
        for (Path page : files.filter(file -> file.toString().endsWith(".md")).toList()) {
          for (MatchResult found : command.matcher(Files.readString(page)).results().toList()) {
            options.addAll(options(found.group(1)));
          }
        }
      }
    }
    return options;
  }

  private static Set<String> options(String text) {
    return Pattern.compile("--[a-z-]+")
        .matcher(text)
        .results()
        .map(MatchResult::group)
        .collect(Collectors.toSet());
  }

  @ParameterizedTest
  @ValueSource(strings = {"explain", "simulate"})
  void pageShowsTheOutput(String tool) throws Exception {
    String page = Files.readString(Checkout.ROOT.resolve("docs/tools/" + tool + ".md"));
    Matcher shown =
        Pattern.compile("    \\$ scripts/nccl4j " + tool + " (.*)\n((    .*\n|\n)+)").matcher(page);
    assertTrue(shown.find());
    List<String> command = new ArrayList<>(List.of(tool));
    command.addAll(List.of(shown.group(1).split(" ")));
    String output = run(command.toArray(String[]::new)).out();
    int end = 0;
    for (String part : shown.group(2).replaceAll("(?m)^    ", "").strip().split(" *\\.{3}\n", -1)) {
      int begin = output.indexOf(part, end);
      assertTrue(begin >= 0, () -> "not printed: " + part + "\nprinted: " + output);
      end = begin + part.length();
    }
  }

  @Test
  void readmeShowsTheTable() throws Exception {
    List<String> printed =
        run("perf", "all_reduce", "--backend", "reference", "-b", "8", "-e", "8", "-w", "0")
            .out()
            .lines()
            .map(String::stripTrailing)
            .toList();
    List<String> shown =
        Files.readAllLines(Checkout.ROOT.resolve("README.md")).stream()
            .dropWhile(line -> !line.startsWith("$ scripts/all-reduce-perf"))
            .takeWhile(line -> !line.equals("```"))
            .filter(line -> line.startsWith("#"))
            .toList();
    assertEquals(4, shown.size());
    for (String line : shown) {
      assertTrue(printed.contains(line), () -> line + " is not in " + printed);
    }
  }

  @Test
  void versionIsPrinted() throws Exception {
    FinishedProgram ended = run("--version");
    assertEquals(0, ended.status());
    assertEquals("nccl4j " + Backend.libraryVersion() + "\n", ended.out());
  }

  @Test
  void unknownToolIsNamed() throws Exception {
    FinishedProgram ended = run("pref", "--help");
    assertEquals(2, ended.status());
    assertTrue(ended.output().startsWith("nccl4j: unknown tool 'pref'\nusage: "), ended.output());
  }

  @Test
  void sweepStartsPerfThroughNccl4j() throws Exception {
    FinishedProgram ended =
        run("sweep --backend reference --ranks 2 -b 8 -e 8 -n 1 --rounds 1 --algo ring".split(" "));
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.output().contains("ring"), ended.output());
  }
}
