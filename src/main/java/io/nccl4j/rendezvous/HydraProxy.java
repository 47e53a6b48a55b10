package io.nccl4j.rendezvous;

import io.nccl4j.internal.rendezvous.Token;
import java.nio.file.Path;
import java.util.Optional;

/**
 * The process of MPICH's launcher that is an ancestor of all ranks on a host: what names the run,
 * as Hydra leaves no variable that does.
 */
final class HydraProxy {
  private HydraProxy() {}

  /** Returns what names the run that this process belongs to, the same for all ranks of a host. */
  static Optional<String> ofThisProcess() {
    Optional<ProcessHandle> ancestor = ProcessHandle.current().parent();
    while (ancestor.isPresent() && !isProxy(ancestor.get())) {
      ancestor = ancestor.get().parent();
    }
    return ancestor.map(proxy -> proxy.pid() + " " + Token.ofText(arguments(proxy)).toHex());
  }

  /** Returns what holds, among others, the port by which the proxy reaches its mpiexec. */
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
