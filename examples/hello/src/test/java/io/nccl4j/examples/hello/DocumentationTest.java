package io.nccl4j.examples.hello;

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
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What the README, the pages in docs and the Javadoc show: programs run, code is compiled, versions
 * are current, files and links exist.
 */
class DocumentationTest {
  private static final Pattern CODE_BLOCK = Pattern.compile("(?ms)^(`{3,})[^`]*?$.*?^\\1$");
  private static final Pattern JAVA_BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
  private static final String SNIPPET = "{@snippet";
  private static final Pattern VERSION_PROPERTY =
      Pattern.compile("<([a-z0-9.]+\\.version)>([^<]+)<");
  private static final Pattern COORDINATES =
      Pattern.compile("(<groupId>[^<]+</groupId>)?<artifactId>[^<]+</artifactId><version>[^<]+<");
  private static final Pattern JAR =
      Pattern.compile("([a-z0-9-]+?)-([0-9][0-9.]*(-SNAPSHOT)?)\\.jar");
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
    assertPrintsTheSums(page, folder, List.of());
  }

  @Test
  void launchedProgramPrintsTheSums(@TempDir Path folder) throws Exception {
    String launcher = Checkout.ROOT.resolve("examples/launch/plain.sh").toString();
    assertPrintsTheSums("docs/getting-started.md", folder, List.of(launcher, "2"));
  }

  private static void assertPrintsTheSums(String page, Path folder, List<String> launcher)
      throws Exception {
    List<String> programs =
        javaBlocks(Checkout.ROOT.resolve(page)).stream()
            .filter(DocumentationTest::isProgram)
            .toList();
    assertEquals(1, programs.size());
    Path source = folder.resolve("Sum.java");
    Files.writeString(source, programs.getFirst());
    List<String> command = new ArrayList<>(launcher);
    command.addAll(
        List.of(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "--enable-native-access=ALL-UNNAMED",
            "-cp",
            System.getProperty("jdk.module.path"),
            source.toString()));
    FinishedProgram ended = FinishedProgram.run(Map.of(), command);
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
  void fragmentsOfThePagesAreCompiled() throws IOException {
    List<String> fragments = new ArrayList<>();
    for (Path page : pages()) {
      javaBlocks(page).stream().filter(block -> !isProgram(block)).forEach(fragments::add);
    }
    assertCompiled(3, fragments);
  }

  @Test
  void snippetsOfTheJavadocAreCompiled() throws IOException {
    List<String> snippets = new ArrayList<>();
    for (String folder : List.of("src/main", "reference/src/main", "training/src/main")) {
      for (Path file : files(Checkout.ROOT.resolve(folder), ".java")) {
        snippets.addAll(snippets(Files.readString(file)));
      }
    }
    assertCompiled(15, snippets);
  }

  private static void assertCompiled(int atLeast, List<String> shown) throws IOException {
    assertTrue(shown.size() >= atLeast, "only " + shown.size() + " were found");
    List<String> missing = new ArrayList<>(shown);
    for (String folder :
        List.of(
            "src/test/java",
            "reference/src/test",
            "training/src/test",
            "examples",
            "adapters",
            "contract/src")) {
      for (Path file : files(Checkout.ROOT.resolve(folder), ".java")) {
        String compiled = code(Files.readString(file));
        missing.removeIf(it -> compiled.contains(code(it)));
      }
    }
    assertEquals(List.of(), missing);
  }

  /** Returns the bodies of the snippets in a file, without the asterisks of the comment. */
  private static List<String> snippets(String file) {
    List<String> bodies = new ArrayList<>();
    for (int at = file.indexOf(SNIPPET); at >= 0; at = file.indexOf(SNIPPET, at)) {
      at = file.indexOf('\n', at);
      int begin = at;
      for (int open = 1; open > 0; at++) {
        open += file.charAt(at) == '{' ? 1 : file.charAt(at) == '}' ? -1 : 0;
      }
      bodies.add(file.substring(begin, at - 1).replaceAll("(?m)^ *\\*", ""));
    }
    return bodies;
  }

  /** Returns code without comments and white space, which the formatter may move. */
  private static String code(String text) {
    return text.replaceAll("//.*", "").replaceAll("\\s", "");
  }

  @Test
  void versionsAreThoseOfTheBuild() throws IOException {
    StringBuilder text = new StringBuilder();
    for (String folder : List.of("pom.xml", "parent", "adapters", "examples")) {
      for (Path pom : files(Checkout.ROOT.resolve(folder), "pom.xml")) {
        text.append(code(Files.readString(pom)));
      }
    }
    // A module's own coordinates, as a dependency on it has them.
    String poms =
        text.toString()
            .replaceAll(
                "</parent><artifactId>([^<]+)</artifactId>",
                "<groupId>io.github.nccl4j</groupId><artifactId>$1</artifactId>"
                    + "<version>\\${project.version}</version>");
    for (MatchResult version : VERSION_PROPERTY.matcher(poms).results().toList()) {
      poms = poms.replace("${" + version.group(1) + "}", version.group(2));
    }
    List<Path> pages = new ArrayList<>(pages());
    pages.add(Checkout.ROOT.resolve("adapters/README.md"));
    List<String> versions = new ArrayList<>();
    for (Path page : pages) {
      String content = Files.readString(page);
      COORDINATES.matcher(code(content)).results().map(MatchResult::group).forEach(versions::add);
      JAR.matcher(content)
          .results()
          .map(
              jar ->
                  "<artifactId>%s</artifactId><version>%s<".formatted(jar.group(1), jar.group(2)))
          .forEach(versions::add);
    }
    assertTrue(versions.size() >= 6, versions.toString());
    versions.removeIf(poms.replace("${project.version}", Backend.libraryVersion())::contains);
    assertEquals(List.of(), versions, "not in the POMs");
  }

  /** Recordings that users send to others must not contain their environment. */
  @Test
  void shownRecordingsOmitTheEnvironment() throws IOException {
    List<Path> texts = new ArrayList<>(pages());
    texts.addAll(files(Checkout.ROOT.resolve("scripts"), ".md"));
    texts.addAll(files(Checkout.ROOT.resolve("examples"), ".md"));
    texts.addAll(files(Checkout.ROOT.resolve("tools/src/main"), ".java"));
    List<String> starts = new ArrayList<>();
    for (Path text : texts) {
      Files.readAllLines(text).stream()
          .filter(line -> line.matches(".*(StartFlightRecording:filename|JFR\\.start ).*"))
          .forEach(starts::add);
    }
    assertTrue(starts.size() >= 6, starts.toString());
    starts.removeIf(line -> line.contains("jdk.InitialEnvironmentVariable#enabled=false"));
    assertEquals(List.of(), starts);
  }

  @Test
  void linksAndCommandsExist() throws IOException {
    List<String> missing = new ArrayList<>();
    int links = 0;
    for (Path page : pages()) {
      String text = Files.readString(page);
      String prose = CODE_BLOCK.matcher(text).replaceAll("");
      for (MatchResult link : LINK.matcher(prose).results().toList()) {
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
