package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Unexpected failures while rank 0 serves a client. */
class IdServerErrorsTest {
  private static final int TIMEOUT_MILLIS = 5000;

  @Test
  void clientThatCannotBeServedEndsNoOther() throws Exception {
    InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    // Without a handshake timeout no client can be served.
    IdServer.Limits limits = new IdServer.Limits(null, 1, Duration.ofSeconds(1));
    try (IdServer server = new IdServer(any, new JobRank(0, 2, ""), SharedSecret.none(), limits)) {
      for (int client = 0; client < 3; client++) {
        try (Socket socket = new Socket(any.getAddress(), server.port())) {
          socket.setSoTimeout(TIMEOUT_MILLIS);
          assertEquals(-1, socket.getInputStream().read(), "the connection is closed");
        }
      }
    }
  }
}
