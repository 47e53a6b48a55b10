package io.nccl4j.reference;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import io.nccl4j.rendezvous.Secret;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;

/** The main class of a process for {@link FileDescriptorsTest}: listens until its input ends. */
public final class ListeningProcess {
  private ListeningProcess() {}

  /** Listens for ranks, or for a rendezvous; prints the address. */
  public static void main(String[] arguments) throws IOException {
    switch (arguments[0]) {
      case "ranks" -> {
        InetSocketAddress address =
            ReferenceId.of(ReferenceBackend.open(1).newUniqueId()).maker().address();
        System.out.println(address.getAddress().getHostAddress() + " " + address.getPort());
      }
      case "rendezvous" -> {
        Secret secret = Secret.of("a secret of a test that is long");
        int port = freePort();
        Rendezvous rendezvous = Rendezvous.tcp("127.0.0.1", port, secret, RankInfo.of(0, 2));
        // The first exchange loads classes, for which there may be no file descriptors later.
        Thread.ofPlatform()
            .daemon()
            .start(
                () -> {
                  try (Rendezvous other =
                      Rendezvous.tcp("127.0.0.1", port, secret, RankInfo.of(1, 2))) {
                    other.exchange(ListeningProcess::id);
                  }
                });
        rendezvous.exchange(ListeningProcess::id);
        System.out.println("127.0.0.1 " + port);
        Thread.ofPlatform().daemon().start(() -> rendezvous.exchange(ListeningProcess::id));
      }
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    while (System.in.read() >= 0) {
      // Reads until the end of the input.
    }
    System.exit(0);
  }

  private static UniqueId id() {
    return UniqueId.fromHex("01".repeat(UniqueId.BYTES));
  }

  private static int freePort() throws IOException {
    try (ServerSocket free = new ServerSocket(0)) {
      return free.getLocalPort();
    }
  }
}
