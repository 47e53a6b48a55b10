package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnStandIn;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * The stand-in's own tests, which are C: a caller in C falls into the traps, so that what nccl4j
 * steps over is there. Each runs in a process of its own, without what this one's environment says.
 */
@OnStandIn
class StandInSelfTest {
  @TempDir private Path temp;

  @ParameterizedTest(name = "NCCL {0}")
  @CsvSource({"2.30, 23007", "2.27, 22703", "2.22, 22203", "2.18, 21801"})
  void theStandInIsAsItsOwnTestSays(String release, int code) throws Exception {
    boolean newest = release.equals("2.30");
    List<String> command = new ArrayList<>(List.of("src/test/native/build", "--selftest"));
    if (!newest) {
      command.add("--nccl=" + release);
    }
    List<String> said = run(command);
    String last = said.getLast();
    assertTrue(last.startsWith("selftest: ") && last.endsWith("ok"), () -> String.join("\n", said));
    if (newest) {
      assertTrue(said.contains("selftest: a look during the end of a group"), said::toString);
    } else {
      assertTrue(last.endsWith("as NCCL " + code + ": ok"), last);
    }
  }

  private List<String> run(List<String> command) throws IOException, InterruptedException {
    Path output = temp.resolve("output");
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .directory(Path.of(System.getProperty("basedir", ".")).toFile())
            .redirectErrorStream(true)
            .redirectOutput(output.toFile());
    // Above all the record of what Java has called is not to name what C calls here.
    builder.environment().keySet().removeIf(name -> name.startsWith("NCCL"));
    Process process = builder.start();
    if (!process.waitFor(5, TimeUnit.MINUTES)) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    List<String> said = Files.readAllLines(output);
    assertEquals(0, process.waitFor(), () -> String.join("\n", said));
    return said;
  }
}
