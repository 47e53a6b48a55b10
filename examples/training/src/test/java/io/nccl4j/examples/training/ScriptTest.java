package io.nccl4j.examples.training;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.spi.ToolProvider;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** First run of the script in a built clone, before any library is unpacked. */
@Tag("slow")
class ScriptTest {
  /** The sources whose age the script compares with that of the build. */
  private static final List<String> SOURCES =
      List.of(
          "pom.xml",
          "bindings",
          "src",
          "adapters",
          "parent",
          "reference",
          "tools",
          "training",
          "examples/training/pom.xml",
          "examples/training/src");

  @TempDir Path clone;

  @BeforeEach
  void createClone() throws IOException {
    Path built = Files.createDirectories(clone.resolve("target/run-training.built"));
    Files.createSymbolicLink(built.resolveSibling("run-training"), built.getFileName());
    for (String source : SOURCES) {
      Files.createDirectories(clone.resolve(source).getParent());
      Files.createSymbolicLink(clone.resolve(source), Checkout.ROOT.resolve(source));
    }
    // Copied, since a script resolves links and searches beside the real file.
    for (String script :
        List.of("examples/training/run-simple", "scripts/lib/java.sh", "scripts/lib/training.sh")) {
      Files.createDirectories(clone.resolve(script).getParent());
      Files.copy(Checkout.ROOT.resolve(script), clone.resolve(script));
    }
    for (Path part : classPath()) {
      if (Files.isRegularFile(part)) {
        Files.createSymbolicLink(built.resolve(part.getFileName()), part);
      } else if (part.endsWith("classes")) {
        pack(part, built.resolve(part.toString().replace('/', '-') + ".jar"));
      }
    }
    Files.writeString(built.resolve("java-home"), System.getProperty("java.home") + "\n");
  }

  private static void pack(Path classes, Path jar) {
    ToolProvider tool = ToolProvider.findFirst("jar").orElseThrow();
    String[] arguments = {"--create", "--file", jar.toString(), "-C", classes.toString(), "."};
    assertEquals(0, tool.run(System.out, System.err, arguments));
  }

  /** Removes the links, since JUnit warns about each. */
  @AfterEach
  void removeLinks() throws IOException {
    try (Stream<Path> files = Files.walk(clone)) {
      for (Path link : files.filter(Files::isSymbolicLink).toList()) {
        Files.delete(link);
      }
    }
  }

  private static List<Path> classPath() {
    return Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
        .map(Path::of)
        .toList();
  }

  @Test
  void fourRanksUnpackPyTorchAndAverageTheirGradients() throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(
            new ProcessBuilder(
                    clone.resolve("examples/training/run-simple").toString(),
                    "--backend",
                    "reference",
                    "--procs",
                    "4")
                .directory(clone.toFile()));
    assertEquals(
        """
        rank 0 of 4: local gradient 0.0, averaged 10.5
        rank 1 of 4: local gradient 7.0, averaged 10.5
        rank 2 of 4: local gradient 14.0, averaged 10.5
        rank 3 of 4: local gradient 21.0, averaged 10.5
        """,
        // A slow machine logs to stderr that ranks are late.
        ended.out(),
        ended::err);
    assertEquals(0, ended.status());
  }
}
