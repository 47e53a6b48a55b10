package io.nccl4j.examples.hello;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Checks that the scripts run from any folder and through links. */
class ScriptsTest {
  private static final Path SCRIPTS = Checkout.ROOT.resolve("scripts");

  /** Expressions that fail for 'cd scripts; bash nccl4j', or yield the folder of a link. */
  private static final Pattern UNRESOLVED =
      Pattern.compile("BASH_SOURCE\\[0\\]%|dirname \"\\$(0|\\{BASH_SOURCE\\[0\\]\\})");

  @TempDir Path folder;

  private void assertRuns(Path from, String... command) throws IOException, InterruptedException {
    FinishedProgram ended =
        FinishedProgram.run(new ProcessBuilder(command).directory(from.toFile()));
    assertEquals(0, ended.status(), ended.output());
  }

  @Test
  void scriptRunsThroughALinkAndFromItsOwnFolder() throws IOException, InterruptedException {
    Path link =
        Files.createSymbolicLink(folder.resolve("check"), SCRIPTS.resolve("generate-bindings"));
    assertRuns(folder, link.toString(), "--check");
    assertRuns(SCRIPTS, "bash", "generate-bindings", "--check");
  }

  @Test
  void everyScriptResolvesLinksToItself() throws IOException {
    List<Path> scripts;
    try (Stream<Path> files = Files.walk(SCRIPTS)) {
      scripts = files.filter(Files::isRegularFile).toList();
    }
    assertTrue(scripts.contains(SCRIPTS.resolve("nccl4j")), scripts.toString());
    for (Path script : scripts) {
      assertFalse(UNRESOLVED.matcher(Files.readString(script)).find(), script.toString());
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "-Da=b -XX:StartFlightRecording:filename=rank-%p.jfr -Dc=d | -Da=b -Dc=d",
        "-XX:StartFlightRecording:filename=\"two words.jfr\",settings=profile -De=f | -De=f",
        "\"-XX:StartFlightRecording:filename=two words.jfr\" -Dg=h | -Dg=h",
        "-XX:StartFlightRecording:filename='two words.jfr' -Di=j | -Di=j",
        "'-XX:StartFlightRecording:filename=two words.jfr' -XX:StartFlightRecording -Dk=l | -Dk=l"
      })
  void recordingOptionsAreNotPassedToTheBuild(String options, String buildOptions)
      throws IOException, InterruptedException {
    Path library = Files.createDirectories(folder.resolve("scripts/lib")).resolve("java.sh");
    Files.copy(SCRIPTS.resolve("lib/java.sh"), library);
    Path maven = Files.createDirectory(folder.resolve("bin")).resolve("mvn");
    Files.writeString(
        maven, "#!/bin/sh\necho $JAVA_TOOL_OPTIONS, $JDK_JAVA_OPTIONS >asked\nexit 1\n");
    assertTrue(maven.toFile().setExecutable(true));
    ProcessBuilder builder =
        new ProcessBuilder("bash", "-c", ". scripts/lib/java.sh; nccl4j_ready program")
            .directory(folder.toFile());
    Map<String, String> environment = builder.environment();
    environment.merge("PATH", maven.getParent() + ":", (path, bin) -> bin + path);
    environment.put("JAVA_TOOL_OPTIONS", options);
    environment.put("JDK_JAVA_OPTIONS", options);
    FinishedProgram ended = FinishedProgram.run(builder);
    assertEquals(
        buildOptions + ", " + buildOptions + "\n",
        Files.readString(folder.resolve("asked")),
        ended.output());
  }

  /** Other users run the programs of a checkout that one of them has built. */
  @ParameterizedTest
  @CsvSource({
    "022, rwxr-xr-x, rw-r--r--",
    "027, rwxr-x---, rw-r-----",
    "077, rwx------, rw-------"
  })
  void buildHasThePermissionsOfTheUmask(String umask, String folders, String files)
      throws IOException, InterruptedException {
    Path library = Files.createDirectories(folder.resolve("scripts/lib")).resolve("java.sh");
    Files.copy(SCRIPTS.resolve("lib/java.sh"), library);
    Path maven = Files.createDirectory(folder.resolve("bin")).resolve("mvn");
    Files.writeString(
        maven,
        """
        #!/bin/sh
        mkdir -p program/target/modules
        touch program/target/program.jar program/target/modules/other.jar
        echo 'java.home = %s' >target/java-settings
        """
            .formatted(System.getProperty("java.home")));
    assertTrue(maven.toFile().setExecutable(true));
    ProcessBuilder builder =
        new ProcessBuilder(
                "bash",
                "-c",
                "umask %s; . scripts/lib/java.sh; nccl4j_ready program".formatted(umask))
            .directory(folder.toFile());
    builder.environment().merge("PATH", maven.getParent() + ":", (path, bin) -> bin + path);
    FinishedProgram ended = FinishedProgram.run(builder);
    assertEquals(0, ended.status(), ended.output());
    Path run = folder.resolve("target/run-program").toRealPath();
    try (Stream<Path> built = Files.walk(run)) {
      for (Path path : built.toList()) {
        assertEquals(
            Files.isDirectory(path) ? folders : files,
            PosixFilePermissions.toString(Files.getPosixFilePermissions(path)),
            path.toString());
      }
    }
    assertTrue(Files.exists(run.resolve("other.jar")));
  }
}
