package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Runs the stand-in's own tests, which are in C: they show that its CUDA keeps CUDA's rules, and
 * that a caller in C is affected by the pitfalls that nccl4j avoids. Each runs in its own process,
 * without the NCCL variables of this one.
 */
@OnStandIn
@Timeout(value = 3, unit = TimeUnit.MINUTES)
@Tag("slow")
class StandInSelfTest {
  /** Of one process. The tests take seconds; most of the time is that of compiling them. */
  private static final int DEADLINE_SECONDS = 150;

  private static final Path SOURCES = Checkout.ROOT.resolve("src/test/native");

  @TempDir private Path temp;

  /** The names of the self-tests of the newest release, from {@code selftest_NAME.c}. */
  static List<String> names() throws IOException {
    try (Stream<Path> files = Files.list(SOURCES)) {
      return files
          .map(file -> file.getFileName().toString())
          .filter(file -> file.startsWith("selftest_") && file.endsWith(".c"))
          .map(file -> file.substring("selftest_".length(), file.length() - ".c".length()))
          .filter(name -> !name.equals("older"))
          .sorted()
          .toList();
    }
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("names")
  void selfTestPasses(String name) throws Exception {
    List<String> output = run("--selftest=" + name);
    String last = output.getLast();
    assertTrue(last.endsWith(": ok") || last.endsWith(": passed"), () -> String.join("\n", output));
    if (name.equals("nccl")) {
      assertTrue(
          output.contains("selftest: a state query during the end of a group"), output::toString);
    }
  }

  @ParameterizedTest(name = "NCCL {0}")
  @CsvSource({"2.27, 22703", "2.18, 21801"})
  void selfTestOfOlderReleasePasses(String release, int code) throws Exception {
    String last = run("--selftest", "--nccl=" + release).getLast();
    assertTrue(last.startsWith("selftest: ") && last.endsWith("as NCCL " + code + ": ok"), last);
  }

  private List<String> run(String... options) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(SOURCES.resolve("build").toString()));
    command.addAll(List.of(options));
    Path file = temp.resolve("output");
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .directory(Checkout.ROOT.toFile())
            .redirectErrorStream(true)
            .redirectOutput(file.toFile());
    // In particular, calls from C must not enter the record of the calls from Java.
    builder.environment().keySet().removeIf(name -> name.startsWith("NCCL"));
    Process process = builder.start();
    boolean ended = process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS);
    if (!ended) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
    List<String> output = Files.readAllLines(file);
    assertTrue(
        ended, () -> "not ended after " + DEADLINE_SECONDS + " s:\n" + String.join("\n", output));
    assertEquals(0, process.waitFor(), () -> String.join("\n", output));
    return output;
  }
}
