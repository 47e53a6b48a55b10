package io.nccl4j.rendezvous;

import io.nccl4j.internal.rendezvous.Token;
import java.nio.file.Path;
import java.util.Optional;

/**
 * The proxy process of MPICH's launcher, an ancestor of all ranks on a host. It identifies the run,
 * since Hydra sets no variable that does.
 */
final class HydraProxy {
  private HydraProxy() {}

  /** Returns an identifier of this process's run, the same for all ranks on a host. */
  static Optional<String> ofThisProcess() {
    Optional<ProcessHandle> ancestor = ProcessHandle.current().parent();
    while (ancestor.isPresent() && !isProxy(ancestor.get())) {
      ancestor = ancestor.get().parent();
    }
    return ancestor.map(proxy -> proxy.pid() + " " + Token.ofText(arguments(proxy)).toHex());
  }

  /** Returns the proxy's arguments, which include the port of its mpiexec. */
  private static String arguments(ProcessHandle proxy) {
    return String.join(" ", proxy.info().arguments().orElseGet(() -> new String[0]));
  }

  private static boolean isProxy(ProcessHandle process) {
    return process
        .info()
        .command()
        .map(command -> Path.of(command).getFileName().toString())
        .filter(name -> name.startsWith("hydra_"))
        .isPresent();
  }
}
