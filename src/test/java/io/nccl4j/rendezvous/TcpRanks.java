package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import io.nccl4j.internal.rendezvous.tcp.RejectReason;
import io.nccl4j.internal.util.Deadline;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;

/** Base of TCP tests: rank 0, its clients, and raw connections, all closed after each test. */
abstract class TcpRanks {
  static final String HOST = "127.0.0.1";
  static final Secret SECRET = Secret.of("correct horse battery staple");
  static final Duration SHORT = Duration.ofMillis(1200);

  /** Just enough to get an answer on a busy machine. */
  static final Duration ENOUGH = Duration.ofSeconds(5);

  static final Duration LONG = Duration.ofSeconds(30);

  /** Longer than an honest client needs on a busy machine; only silent clients use it up. */
  static final Duration HANDSHAKE = Duration.ofSeconds(20);

  final List<AutoCloseable> open = new ArrayList<>();

  @AfterEach
  void closeAll() throws Exception {
    for (AutoCloseable each : open.reversed()) {
      each.close();
    }
  }

  TcpRendezvous server(int size, Duration timeout) {
    return server(size, timeout, handshakeWithin(HANDSHAKE));
  }

  static IdServer.Limits handshakeWithin(Duration handshake) {
    return new IdServer.Limits(handshake, 64, Duration.ZERO);
  }

  TcpRendezvous server(int size, Duration timeout, IdServer.Limits limits) {
    RankInfo rankInfo = RankInfo.of(0, size).withTimeout(timeout);
    TcpRendezvous rendezvous = TcpRendezvous.at(HOST, 0, SECRET.shared(), rankInfo, limits);
    open.add(rendezvous);
    return rendezvous;
  }

  TcpRendezvous client(TcpRendezvous server, int rank, Duration timeout) {
    return client(server, SECRET, RankInfo.of(rank, server.size()).withTimeout(timeout));
  }

  TcpRendezvous client(TcpRendezvous server, Secret secret, RankInfo rankInfo) {
    TcpRendezvous rendezvous = TcpRendezvous.at(HOST, server.port(), secret, rankInfo);
    open.add(rendezvous);
    return rendezvous;
  }

  static FutureTask<UniqueId> exchange(Rendezvous rendezvous) {
    return RankThreads.start(() -> rendezvous.exchange(RankThreads::newId));
  }

  Socket connect(TcpRendezvous server) throws IOException {
    Socket socket = new Socket(InetAddress.ofLiteral(HOST), server.port());
    socket.setSoTimeout(30_000);
    open.add(socket);
    return socket;
  }

  static byte[] readFrame(Socket socket) throws IOException {
    InputStream in = socket.getInputStream();
    byte[] length = in.readNBytes(2);
    return length.length < 2 ? length : in.readNBytes(ByteBuffer.wrap(length).getShort());
  }

  static void writeFrame(Socket socket, byte[] message) throws IOException {
    byte[] length = ByteBuffer.allocate(2).putShort((short) message.length).array();
    ByteArrayOutputStream framed = new ByteArrayOutputStream();
    framed.writeBytes(length);
    framed.writeBytes(message);
    socket.getOutputStream().write(framed.toByteArray());
  }

  static void awaitRejected(TcpRendezvous server, RejectReason reason, int count) throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(10));
    while (server.rejections().stream().filter(c -> c.reason() == reason).count() < count) {
      assertFalse(deadline.passed(), () -> reason + " is not in " + server.rejections());
      Thread.sleep(5);
    }
  }

  /** Starts the honest ranks, and checks that they are served without delay. */
  void assertServed(TcpRendezvous server, FutureTask<UniqueId> zero) throws Exception {
    long start = System.nanoTime();
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    for (int rank = 1; rank < server.size(); rank++) {
      ranks.add(exchange(client(server, rank, LONG)));
    }
    UniqueId id = RankThreads.join(zero);
    for (FutureTask<UniqueId> rank : ranks) {
      assertEquals(id, RankThreads.join(rank));
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(Duration.ofSeconds(10)) < 0, () -> "delayed by " + took);
  }
}
