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
 * Runs the stand-in's own tests, which are in C: they show that a caller in C is affected by the
 * pitfalls that nccl4j avoids. Each runs in its own process, without the NCCL variables of this
 * one.
 */
@OnStandIn
class StandInSelfTest {
  @TempDir private Path temp;

  @ParameterizedTest(name = "NCCL {0}")
  @CsvSource({"2.30, 23007", "2.27, 22703", "2.22, 22203", "2.18, 21801"})
  void selfTestPasses(String release, int code) throws Exception {
    boolean newest = release.equals("2.30");
    List<String> command = new ArrayList<>(List.of("src/test/native/build", "--selftest"));
    if (!newest) {
      command.add("--nccl=" + release);
    }
    List<String> output = run(command);
    String last = output.getLast();
    assertTrue(
        last.startsWith("selftest: ") && last.endsWith("ok"), () -> String.join("\n", output));
    if (newest) {
      assertTrue(
          output.contains("selftest: a state query during the end of a group"), output::toString);
    } else {
      assertTrue(last.endsWith("as NCCL " + code + ": ok"), last);
    }
  }

  private List<String> run(List<String> command) throws IOException, InterruptedException {
    Path file = temp.resolve("output");
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .directory(Path.of(System.getProperty("basedir", ".")).toFile())
            .redirectErrorStream(true)
            .redirectOutput(file.toFile());
    // In particular, calls from C must not enter the record of the calls from Java.
    builder.environment().keySet().removeIf(name -> name.startsWith("NCCL"));
    Process process = builder.start();
    if (!process.waitFor(5, TimeUnit.MINUTES)) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    List<String> output = Files.readAllLines(file);
    assertEquals(0, process.waitFor(), () -> String.join("\n", output));
    return output;
  }
}
