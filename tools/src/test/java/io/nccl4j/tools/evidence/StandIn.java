package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** The stand-in for NVIDIA's libraries, which is a test fixture: not NCCL, no GPU. */
final class StandIn {
  /** The checkout. */
  static final Path ROOT = Path.of("").toAbsolutePath().getParent();

  static final Path NCCL = ROOT.resolve("target/standin/libnccl.so.2");
  static final Path CUDART = ROOT.resolve("target/standin/libcudart.so.13");

  private StandIn() {}

  /** Builds it where it is not up to date, or skips the test where that cannot be. */
  static void build() throws IOException, InterruptedException {
    Process process =
        new ProcessBuilder(ROOT.resolve("src/test/native/build").toString())
            .redirectErrorStream(true)
            .start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    boolean built = process.waitFor(2, TimeUnit.MINUTES) && process.exitValue() == 0;
    if (!built && "1".equals(System.getenv("REQUIRE_NCCL"))) {
      throw new AssertionError("the stand-in does not build: " + output);
    }
    assumeTrue(built, () -> "the stand-in does not build: " + output);
  }
}
