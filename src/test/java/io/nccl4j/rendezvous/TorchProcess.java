package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/** PyTorch's own TCP store, in a separate process. */
final class TorchProcess implements AutoCloseable {
  private final Process process;
  private final int port;

  private TorchProcess(Process process, int port) {
    this.process = process;
    this.port = port;
  }

  /** Starts a store, or skips the test where there is no PyTorch. */
  static TorchProcess store(boolean libuv) throws IOException {
    Optional<Path> python = python();
    String missing = "torchrun is neither on the PATH nor installed by scripts/lib/fetch-torchrun";
    boolean required = "1".equals(System.getenv("REQUIRE_LAUNCHERS"));
    assertTrue(python.isPresent() || !required, missing + " (REQUIRE_LAUNCHERS=1)");
    assumeTrue(python.isPresent(), missing);
    String store =
        """
        import sys
        from torch.distributed import TCPStore
        store = TCPStore("127.0.0.1", 0, None, True, use_libuv=%s)
        print(store.port, flush=True)
        sys.stdin.read()
        """
            .formatted(libuv ? "True" : "False");
    Process process =
        new ProcessBuilder(python.get().toString(), "-c", store)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    BufferedReader out = process.inputReader(StandardCharsets.UTF_8);
    return new TorchProcess(process, Integer.parseInt(out.readLine()));
  }

  /** Returns the Python that runs the torchrun of this machine. */
  private static Optional<Path> python() throws IOException {
    List<Path> folders =
        Stream.concat(
                Stream.of(System.getenv("PATH").split(":")).map(Path::of),
                Stream.of(Path.of(System.getProperty("basedir", "."), "target", "torch", "bin")))
            .toList();
    for (Path folder : folders) {
      Path torchrun = folder.resolve("torchrun");
      if (Files.isExecutable(torchrun)) {
        String first = Files.readString(torchrun).lines().findFirst().orElse("");
        return Optional.of(Path.of(first.substring("#!".length()).strip()));
      }
    }
    return Optional.empty();
  }

  int port() {
    return port;
  }

  @Override
  public void close() {
    process.destroyForcibly();
  }
}
