package io.nccl4j.reference;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Secret;
import io.nccl4j.rendezvous.TcpRendezvous;
import java.io.IOException;
import java.net.InetSocketAddress;

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
        TcpRendezvous rendezvous =
            TcpRendezvous.at(
                "127.0.0.1", 0, Secret.of("a secret of a test that is long"), RankInfo.of(0, 2));
        System.out.println("127.0.0.1 " + rendezvous.port());
        Thread.ofPlatform()
            .daemon()
            .start(() -> rendezvous.exchange(() -> UniqueId.fromHex("01".repeat(UniqueId.BYTES))));
      }
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    while (System.in.read() >= 0) {
      // Reads until the end of the input.
    }
    System.exit(0);
  }
}
