package io.nccl4j.examples.hello;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The scripts run from every folder and through links. */
class ScriptsTest {
  private static final Path SCRIPTS =
      Path.of("").toAbsolutePath().getParent().getParent().resolve("scripts");

  /** What has no slash in 'cd scripts; bash perf', or is the link's own folder. */
  private static final Pattern UNRESOLVED =
      Pattern.compile("BASH_SOURCE\\[0\\]%|dirname \"\\$(0|\\{BASH_SOURCE\\[0\\]\\})");

  @TempDir Path folder;

  private void runsWell(Path from, String... command) throws IOException, InterruptedException {
    Path out = folder.resolve("out");
    Process process =
        new ProcessBuilder(command)
            .directory(from.toFile())
            .redirectErrorStream(true)
            .redirectOutput(out.toFile())
            .start();
    assertTrue(process.waitFor(60, TimeUnit.SECONDS), "still running");
    assertEquals(0, process.exitValue(), Files.readString(out));
  }

  @Test
  void aScriptRunsThroughALinkAndFromItsOwnFolder() throws IOException, InterruptedException {
    Path link =
        Files.createSymbolicLink(folder.resolve("check"), SCRIPTS.resolve("generate-bindings"));
    runsWell(folder, link.toString(), "--check");
    runsWell(SCRIPTS, "bash", "generate-bindings", "--check");
  }

  @Test
  void everyScriptResolvesLinksToItself() throws IOException {
    List<Path> scripts;
    try (Stream<Path> files = Files.walk(SCRIPTS)) {
      scripts = files.filter(Files::isRegularFile).toList();
    }
    assertTrue(scripts.contains(SCRIPTS.resolve("perf")), scripts.toString());
    for (Path script : scripts) {
      assertFalse(UNRESOLVED.matcher(Files.readString(script)).find(), script.toString());
    }
  }
}
