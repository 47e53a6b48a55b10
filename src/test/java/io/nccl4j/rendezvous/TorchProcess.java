package io.nccl4j.rendezvous;

import io.nccl4j.fixtures.programs.Torch;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;

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
    String first = Files.readString(Torch.program("torchrun")).lines().findFirst().orElse("");
    String python = first.substring("#!".length()).strip();
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
        new ProcessBuilder(python, "-c", store)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    BufferedReader out = process.inputReader(StandardCharsets.UTF_8);
    return new TorchProcess(process, Integer.parseInt(out.readLine()));
  }

  int port() {
    return port;
  }

  @Override
  public void close() {
    process.destroyForcibly();
  }
}
