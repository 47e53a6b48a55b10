package io.nccl4j.examples.hello;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the README and the guides show: programs run, code is compiled, files and links exist. */
class DocumentationTest {
  private static final Pattern JAVA_BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
  private static final Pattern LINK = Pattern.compile("\\]\\(([^)#\\s]+)[^)]*\\)");
  private static final Pattern COMMAND =
      Pattern.compile("(?m)^(?:    )?\\$ ((?:scripts|examples)/\\S+)");

  private static List<Path> pages() throws IOException {
    List<Path> pages = new ArrayList<>(List.of(Checkout.ROOT.resolve("README.md")));
    for (String file : List.of("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")) {
      pages.add(Checkout.ROOT.resolve(file));
    }
    pages.addAll(files(Checkout.ROOT.resolve("docs"), ".md"));
    return pages;
  }

  private static List<Path> files(Path folder, String end) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      return files
          .filter(file -> file.toString().endsWith(end) && !file.toString().contains("/target/"))
          .toList();
    }
  }

  private static List<String> javaBlocks(Path page) throws IOException {
    return JAVA_BLOCK
        .matcher(Files.readString(page))
        .results()
        .map(found -> found.group(1))
        .toList();
  }

  private static boolean isProgram(String block) {
    return block.contains("void main()");
  }

  @ParameterizedTest
  @ValueSource(strings = {"README.md", "docs/getting-started.md"})
  void programPrintsTheSums(String page, @TempDir Path folder) throws Exception {
    List<String> programs =
        javaBlocks(Checkout.ROOT.resolve(page)).stream()
            .filter(DocumentationTest::isProgram)
            .toList();
    assertEquals(1, programs.size());
    Path source = folder.resolve("Sum.java");
    Files.writeString(source, programs.getFirst());
    FinishedProgram ended =
        FinishedProgram.run(
            Map.of(),
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED",
                "-cp",
                System.getProperty("jdk.module.path"),
                source.toString()));
    assertEquals(0, ended.status(), ended.err());
    List<String> lines = ended.out().lines().sorted().toList();
    int n = lines.size();
    assertTrue(n >= 1, ended.output());
    assertEquals(
        IntStream.range(0, n)
            .mapToObj(rank -> "rank %d: [%d.0, %d.0, %d.0]".formatted(rank, n, 10 * n, 100 * n))
            .sorted()
            .toList(),
        lines);
  }

  @Test
  void fragmentsAreCompiled() throws IOException {
    List<String> sources = new ArrayList<>();
    for (String folder : List.of("src/test/java", "examples", "adapters", "contract/src")) {
      for (Path file : files(Checkout.ROOT.resolve(folder), ".java")) {
        sources.add(code(Files.readString(file)));
      }
    }
    List<String> missing = new ArrayList<>();
    List<Path> pages = new ArrayList<>(files(Checkout.ROOT.resolve("docs/guides"), ".md"));
    pages.add(Checkout.ROOT.resolve("README.md"));
    for (Path page : pages) {
      for (String block : javaBlocks(page)) {
        if (!isProgram(block) && sources.stream().noneMatch(it -> it.contains(code(block)))) {
          missing.add(page.getFileName() + ": " + block);
        }
      }
    }
    assertEquals(List.of(), missing);
  }

  /** Returns code without white space, which the formatter decides. */
  private static String code(String text) {
    return text.replaceAll("\\s", "");
  }

  @Test
  void linksAndCommandsExist() throws IOException {
    List<String> missing = new ArrayList<>();
    int links = 0;
    for (Path page : pages()) {
      String text = Files.readString(page);
      for (MatchResult link : LINK.matcher(text).results().toList()) {
        String target = link.group(1);
        if (!target.contains("://")) {
          links++;
          if (!Files.exists(page.resolveSibling(target))) {
            missing.add(page.getFileName() + " links " + target);
          }
        }
      }
      for (MatchResult command : COMMAND.matcher(text).results().toList()) {
        if (!Files.isExecutable(Checkout.ROOT.resolve(command.group(1)))) {
          missing.add(page.getFileName() + " runs " + command.group(1));
        }
      }
    }
    assertEquals(List.of(), missing);
    assertFalse(links < 50, "only " + links + " links were found");
  }
}
