package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import io.nccl4j.internal.rendezvous.tcp.RejectReason;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class TcpRendezvousTest extends TcpRanks {
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 17, 64})
  void allRanksGetTheIdOfEachRound(int size) throws Exception {
    TcpRendezvous server = server(size, LONG);
    RankThreads.exchange(size, 3, rank -> rank == 0 ? server : client(server, rank, LONG));
  }

  @Test
  void clientsMayStartBeforeTheServer() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.ofLiteral(HOST))) {
      port = free.getLocalPort();
    }
    TcpRendezvous one =
        TcpRendezvous.at("localhost", port, SECRET, RankInfo.of(1, 2).withTimeout(LONG));
    FutureTask<UniqueId> waiting = exchange(one);
    Thread.sleep(200);
    try (TcpRendezvous zero =
        TcpRendezvous.at("localhost", port, SECRET, RankInfo.of(0, 2).withTimeout(LONG))) {
      UniqueId id = zero.exchange(RankThreads::newId);
      assertEquals(id, RankThreads.join(waiting));
    }
  }

  @Test
  void clientAheadOfRankZeroWaitsForItsRound() throws Exception {
    TcpRendezvous server = server(3, LONG);
    TcpRendezvous one = client(server, 1, LONG);
    FutureTask<List<UniqueId>> two =
        RankThreads.start(
            () -> {
              try (Rendezvous rendezvous = client(server, 2, LONG)) {
                return List.of(
                    rendezvous.exchange(RankThreads::newId),
                    rendezvous.exchange(RankThreads::newId));
              }
            });
    FutureTask<UniqueId> first = exchange(server);
    Thread.sleep(200);
    UniqueId firstId = one.exchange(RankThreads::newId);
    assertEquals(firstId, RankThreads.join(first));
    FutureTask<UniqueId> second = exchange(server);
    UniqueId secondId = one.exchange(RankThreads::newId);
    assertEquals(List.of(firstId, secondId), RankThreads.join(two));
    assertEquals(secondId, RankThreads.join(second));
  }

  @Test
  void rankZeroNamesMissingRanksAndRejectedClients() throws Exception {
    TcpRendezvous server = server(6, Duration.ofMillis(5500));
    Socket foreign = connect(server);
    writeFrame(foreign, "GET / HTTP/1.1".getBytes(StandardCharsets.US_ASCII));
    awaitRejected(server, RejectReason.MALFORMED, 1);
    TcpRendezvous waiting = client(server, 2, LONG);
    FutureTask<UniqueId> two = new FutureTask<>(() -> waiting.exchange(RankThreads::newId));
    RankThreads.awaitExchange(RankThreads.startThread(two), TcpRendezvous.class);
    FutureTask<UniqueId> zero = exchange(server);
    NcclTimeoutException timeout = RankThreads.failure(NcclTimeoutException.class, zero);
    assertTrue(
        timeout.getMessage().contains("missing ranks 1, 3-5 of 6 in round 1"),
        timeout.getMessage());
    String address = "127.0.0.1:" + foreign.getLocalPort();
    assertTrue(
        timeout
            .getMessage()
            .contains("rejected 1 clients: " + address + " does not speak the protocol of nccl4j"),
        timeout.getMessage());
    assertEquals(
        ("rank 0 at %s:%d has ended the exchange: it timed out after 5.5 s; missing ranks 1, 3-5"
                + " of 6")
            .formatted(HOST, server.port()),
        RankThreads.failure(RendezvousException.class, two).getMessage());
  }

  @Test
  void failedExchangeStopsListening() throws Exception {
    TcpRendezvous server = server(2, Duration.ofMillis(300));
    assertThrows(NcclTimeoutException.class, () -> server.exchange(RankThreads::newId));
    // A closed rendezvous waits for its accepting thread for a second only.
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (accepts(server)) {
      assertFalse(deadline.passed(), "rank 0 still listens");
      Thread.sleep(5);
    }
  }

  private boolean accepts(TcpRendezvous server) throws IOException {
    try (Socket unexpected = connect(server)) {
      return unexpected.isConnected();
    } catch (ConnectException e) {
      return false;
    }
  }

  @Test
  void waitingRanksNameOtherMissingRanks() throws Exception {
    // Rank 0 answers after a quarter of the limit. An attempt ends with the client's timeout.
    Duration limit = Duration.ofSeconds(6);
    TcpRendezvous server = server(4, LONG, handshakeWithin(limit));
    FutureTask<UniqueId> zero = new FutureTask<>(() -> server.exchange(RankThreads::newId));
    RankThreads.awaitExchange(RankThreads.startThread(zero), TcpRendezvous.class);
    NcclTimeoutException late =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, 2, limit).exchange(RankThreads::newId));
    assertTrue(late.getMessage().contains("(missing ranks 1, 3 of 4)"), late.getMessage());
    assertFalse(zero.isDone());
  }

  @Test
  void tcpDifferentBackendsFailOnEveryRank() throws Exception {
    TcpRendezvous server = server(4, LONG);
    List<RankBackend> backends =
        List.of(RankBackend.NCCL, RankBackend.NCCL, RankBackend.REFERENCE, RankBackend.UNKNOWN);
    RankThreads.assertBackendMismatch(
        "rank 2 uses the reference backend and rank 0 NCCL;",
        backends,
        rank -> rank == 0 ? server : client(server, rank, LONG));
  }

  @Test
  void lateRankIsRejectedAfterABackendMismatch() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero =
        RankThreads.start(() -> server.exchange(RankThreads::newId, RankBackend.REFERENCE));
    TcpRendezvous one = client(server, 1, LONG);
    assertThrows(
        RendezvousException.class, () -> one.exchange(RankThreads::newId, RankBackend.NCCL));
    Thread.sleep(300);
    TcpRendezvous two = client(server, 2, LONG);
    RendezvousException thrown =
        assertThrows(
            RendezvousException.class,
            () -> two.exchange(RankThreads::newId, RankBackend.REFERENCE));
    assertTrue(thrown.getMessage().contains("rank 1 uses NCCL"), thrown.getMessage());
    RankThreads.failure(RendezvousException.class, zero);
  }

  @Test
  void otherRanksReportThatRankZeroHasNotPublished() throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous closed = server(2, LONG);
    closed.close();
    // Rank 0 listens, but has not called exchange.
    FutureTask<UniqueId> early = exchange(client(server, 1, ENOUGH));
    FutureTask<UniqueId> alone = exchange(client(closed, 1, ENOUGH));
    NcclTimeoutException silent = RankThreads.failure(NcclTimeoutException.class, early);
    assertTrue(
        silent.getMessage().contains("rank 0 has not published round 1"), silent.getMessage());
    assertTrue(silent.getMessage().contains("which rank 0 has not reached"), silent.getMessage());
    NcclTimeoutException absent = RankThreads.failure(NcclTimeoutException.class, alone);
    assertTrue(absent.getMessage().contains("Connection refused"), absent.getMessage());
  }

  @Test
  void anotherServiceOnThePortIsNamed() throws Exception {
    try (ServerSocket service = new ServerSocket(0, 50, InetAddress.ofLiteral(HOST))) {
      FutureTask<Void> greeter =
          RankThreads.start(
              () -> {
                while (true) {
                  try (Socket socket = service.accept()) {
                    socket
                        .getOutputStream()
                        .write("SSH-2.0-OpenSSH_9.2\r\n".getBytes(StandardCharsets.US_ASCII));
                  }
                }
              });
      TcpRendezvous one =
          TcpRendezvous.at(
              HOST, service.getLocalPort(), SECRET, RankInfo.of(1, 2).withTimeout(ENOUGH));
      NcclTimeoutException timeout =
          assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(timeout.getMessage().contains("is not nccl4j"), timeout.getMessage());
      assertFalse(greeter.isDone());
    }
  }

  @Test
  void silentServerTimesOut() throws Exception {
    try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.ofLiteral(HOST))) {
      TcpRendezvous one =
          TcpRendezvous.at(HOST, mute.getLocalPort(), SECRET, RankInfo.of(1, 2).withTimeout(SHORT));
      long start = System.nanoTime();
      assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      // An attempt would end after ten seconds anyway.
      assertTrue(System.nanoTime() - start < Duration.ofSeconds(9).toNanos());
    }
  }

  @Test
  void portInUseIsNamed() throws Exception {
    TcpRendezvous server = server(2, LONG);
    RendezvousException taken =
        assertThrows(
            RendezvousException.class,
            () -> TcpRendezvous.at(HOST, server.port(), SECRET, RankInfo.of(0, 2)));
    assertTrue(taken.getMessage().contains(":" + server.port()), taken.getMessage());
    assertTrue(taken.getMessage().contains("in use"), taken.getMessage());
  }

  @Test
  void unknownHostIsNamed() {
    TcpRendezvous one =
        TcpRendezvous.at(
            "no-such-host.invalid", 4711, SECRET, RankInfo.of(1, 2).withTimeout(SHORT));
    NcclTimeoutException timeout =
        assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
    assertTrue(timeout.getMessage().contains("no-such-host.invalid"), timeout.getMessage());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void interruptEndsTheWaitAndIsPreserved(int rank) throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous rendezvous = rank == 0 ? server : client(server, rank, LONG);
    FutureTask<Boolean> task =
        new FutureTask<>(
            () -> {
              assertThrows(
                  RendezvousException.class, () -> rendezvous.exchange(RankThreads::newId));
              return Thread.currentThread().isInterrupted();
            });
    Thread thread = RankThreads.startThread(task);
    Thread.sleep(RankThreads.RANDOM.nextInt(100));
    thread.interrupt();
    assertEquals(true, RankThreads.join(task));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void closeEndsTheWait(int rank) throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous rendezvous = rank == 0 ? server : client(server, rank, LONG);
    FutureTask<UniqueId> task = new FutureTask<>(() -> rendezvous.exchange(RankThreads::newId));
    RankThreads.awaitExchange(RankThreads.startThread(task), TcpRendezvous.class);
    rendezvous.close();
    RendezvousException closed = RankThreads.failure(RendezvousException.class, task);
    assertTrue(closed.getMessage().contains("was closed"), closed.getMessage());
  }

  @Test
  void closeFreesThePortAtOnce() throws Exception {
    TcpRendezvous server = server(2, LONG);
    try (LogLines log = new LogLines(IdServer.class)) {
      server.close();
      server.close();
      for (int again = 0; again < 50; again++) {
        try (TcpRendezvous next = listenAgain(server.port(), log)) {
          assertEquals(server.port(), next.port());
        }
      }
    }
  }

  /** Listens on a free port; retries only if a close has logged that the port is not free yet. */
  private static TcpRendezvous listenAgain(int port, LogLines log) throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (true) {
      try {
        return TcpRendezvous.at(HOST, port, SECRET, RankInfo.of(0, 2));
      } catch (RendezvousException e) {
        String closed = "port " + port + " of rank 0 is closed, but not yet free";
        if (deadline.passed() || !log.lines().contains(closed)) {
          throw e;
        }
        Thread.sleep(5);
      }
    }
  }

  @Test
  void withoutSecretOnlyLoopbackIsUsed() throws Exception {
    RankInfo rankInfo = RankInfo.of(0, 2).withTimeout(LONG);
    try (TcpRendezvous server = TcpRendezvous.onLoopback(0, rankInfo);
        TcpRendezvous one =
            TcpRendezvous.onLoopback(server.port(), RankInfo.of(1, 2).withTimeout(LONG))) {
      assertTrue(InetAddress.getByName(server.host()).isLoopbackAddress());
      InetAddress own = InetAddress.getLocalHost();
      if (!own.isLoopbackAddress()) {
        try (SocketChannel channel = SocketChannel.open()) {
          assertThrows(
              IOException.class, () -> channel.connect(new InetSocketAddress(own, server.port())));
        }
      }
      FutureTask<UniqueId> got = exchange(one);
      assertEquals(server.exchange(RankThreads::newId), RankThreads.join(got));
    }
  }

  @Test
  void argumentsAreChecked() {
    RankInfo one = RankInfo.of(1, 2);
    assertEquals(
        "port is 0; it must be from 1 to 65535",
        assertThrows(IllegalArgumentException.class, () -> TcpRendezvous.at(HOST, 0, SECRET, one))
            .getMessage());
    assertThrows(IllegalArgumentException.class, () -> TcpRendezvous.at(HOST, 65536, SECRET, one));
    assertThrows(IllegalArgumentException.class, () -> TcpRendezvous.at(" ", 1, SECRET, one));
    assertThrows(NullPointerException.class, () -> TcpRendezvous.at(HOST, 1, null, one));
  }

  @Test
  void secretsAreCheckedAndHidden() {
    assertEquals(
        "secret has 15 bytes; it must have 16 or more, and be random",
        assertThrows(IllegalArgumentException.class, () -> Secret.of("fifteen bytes.."))
            .getMessage());
    assertThrows(IllegalArgumentException.class, () -> Secret.of(new byte[0]));
    assertEquals("Secret[hidden]", SECRET.toString());
    assertEquals("Secret[hidden]", Secret.of("0123456789abcdef").toString());
  }
}
