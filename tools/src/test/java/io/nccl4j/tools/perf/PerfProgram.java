package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The command as a process of its own, and the stand-in that it can run on. */
public final class PerfProgram {
  private static final Path ROOT = Path.of("").toAbsolutePath().getParent();

  private PerfProgram() {}

  static String java() {
    return Path.of(System.getProperty("java.home"), "bin", "java").toString();
  }

  /** Returns what starts the command, but for its arguments. */
  public static List<String> command() {
    return new ArrayList<>(
        List.of(
            java(),
            "--enable-native-access=ALL-UNNAMED",
            "--illegal-native-access=deny",
            "-cp",
            System.getProperty("java.class.path"),
            Perf.class.getName()));
  }

  /** Builds the stand-in, or skips the test where that cannot be; returns what names it. */
  public static Map<String, String> standIn() throws IOException, InterruptedException {
    return standIn("");
  }

  /** Does the same for the stand-in of an older NCCL: {@code 2.18}, for one. */
  static Map<String, String> standIn(String nccl) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>();
    command.add(ROOT.resolve("src/test/native/build").toString());
    if (!nccl.isEmpty()) {
      command.add("--nccl=" + nccl);
    }
    Process build = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(build.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    boolean built = build.waitFor() == 0;
    if (!built && "1".equals(System.getenv("REQUIRE_NCCL"))) {
      throw new AssertionError("the stand-in does not build: " + said);
    }
    assumeTrue(built, () -> "the stand-in does not build: " + said);
    Path folder = ROOT.resolve(nccl.isEmpty() ? "target/standin" : "target/standin-" + nccl);
    return Map.of(
        "NCCL4J_NCCL_LIBRARY", folder.resolve("libnccl.so.2").toString(),
        "NCCL4J_CUDART_LIBRARY", folder.resolve("libcudart.so.13").toString());
  }
}
