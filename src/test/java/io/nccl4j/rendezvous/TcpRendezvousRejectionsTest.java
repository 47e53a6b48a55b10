package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.rendezvous.tcp.Handshake;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import io.nccl4j.internal.rendezvous.tcp.RejectReason;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;

/** Connections that do not belong to the run get no id and do not delay the run's ranks. */
class TcpRendezvousRejectionsTest extends TcpRanks {
  private static Handshake.Claim claim(int rank, int size) {
    return new Handshake.Claim(
        rank, size, 1, RankBackend.UNKNOWN, Token.ofText(""), Token.random());
  }

  /** A connection that has received rank 0's answer and has not sent a receipt. */
  private static final class AnsweredClaim {
    private final Socket socket;
    private final Handshake handshake;
    private final byte[] greeting;
    private final byte[] message;
    private final byte[] answer;

    private AnsweredClaim(Socket socket, Handshake.Claim claim) throws IOException {
      this.socket = socket;
      this.greeting = readFrame(socket);
      this.handshake = Handshake.ofClient(SECRET.shared(), greeting, claim);
      this.message = handshake.claimMessage();
      writeFrame(socket, message);
      this.answer = readFrame(socket);
      assertEquals(IdServer.SEALED, answer[0]);
    }

    private byte[] sealed() {
      return Arrays.copyOfRange(answer, 1, answer.length);
    }

    private byte[] opened() throws IOException {
      return handshake.open(sealed());
    }

    private byte[] receipt() {
      return handshake.receipt(sealed());
    }
  }

  /** Sends a claim repeatedly until rank 0 has reached the round and grants it. */
  private AnsweredClaim ask(TcpRendezvous server, Handshake.Claim claim) throws Exception {
    while (true) {
      AnsweredClaim answered = new AnsweredClaim(connect(server), claim);
      int answer = answered.opened()[0];
      if (answer != RejectReason.ROUND_TO_COME.code()
          && answer != RejectReason.OTHERS_MISSING.code()) {
        assertEquals(IdServer.GRANTED, answer);
        return answered;
      }
      Thread.sleep(5);
    }
  }

  private static void assertRejected(RejectReason reason, Socket socket) throws IOException {
    assertArrayEquals(
        new byte[] {IdServer.PLAIN, (byte) reason.code()}, readFrame(socket), reason.toString());
    assertEquals(-1, socket.getInputStream().read(), "the connection is closed");
  }

  private static void awaitClaim(TcpRendezvous server, int rank) throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(10));
    while (!server.arrived().get(rank)) {
      assertFalse(deadline.passed(), () -> "rank " + rank + " has not arrived");
      Thread.sleep(5);
    }
  }

  @Test
  void wrongSecretIsRejectedWithoutDelayingOthers() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Secret wrong = Secret.of("incorrect horse battery");
    RendezvousException thrown =
        assertThrows(
            RendezvousException.class,
            () ->
                client(server, wrong, RankInfo.of(1, 3).withTimeout(LONG))
                    .exchange(RankThreads::newId));
    assertTrue(thrown.getMessage().contains("does not know the secret"), thrown.getMessage());
    awaitRejected(server, RejectReason.NOT_AUTHENTIC, 1);
    assertServed(server, zero);
  }

  @Test
  void impostorOfRankZeroIsDetected() throws Exception {
    try (TcpRendezvous impostor =
        TcpRendezvous.at(HOST, 0, Secret.of("incorrect horse battery"), RankInfo.of(0, 2))) {
      RendezvousException thrown =
          assertThrows(
              RendezvousException.class,
              () -> client(impostor, 1, LONG).exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains("secret"), thrown.getMessage());
    }
  }

  @Test
  void replayedClaimIsRejected() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Socket first = connect(server);
    byte[] message =
        Handshake.ofClient(SECRET.shared(), readFrame(first), claim(1, 3)).claimMessage();
    Socket second = connect(server);
    readFrame(second);
    writeFrame(second, message);
    assertRejected(RejectReason.NOT_AUTHENTIC, second);
    first.close();
    assertServed(server, zero);
  }

  @Test
  void replayedAnswerIsRejected() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    AnsweredClaim recorded = ask(server, claim(1, 2));
    writeFrame(recorded.socket, recorded.receipt());
    RankThreads.join(zero);

    try (ServerSocket replayer = new ServerSocket(0, 1, InetAddress.ofLiteral(HOST))) {
      FutureTask<Void> replay =
          RankThreads.start(
              () -> {
                try (Socket victim = replayer.accept()) {
                  writeFrame(victim, recorded.greeting);
                  readFrame(victim);
                  writeFrame(victim, recorded.answer);
                }
                return null;
              });
      TcpRendezvous victim =
          TcpRendezvous.at(
              HOST, replayer.getLocalPort(), SECRET, RankInfo.of(1, 2).withTimeout(LONG));
      RendezvousException thrown =
          assertThrows(RendezvousException.class, () -> victim.exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains("does not know the secret"), thrown.getMessage());
      RankThreads.join(replay);
    }
  }

  @Test
  void idAndSecretAreNeverSentInPlaintext() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    AnsweredClaim heard = ask(server, claim(1, 2));
    writeFrame(heard.socket, heard.receipt());
    UniqueId id = RankThreads.join(zero);
    HexFormat hex = HexFormat.of();
    String wire =
        String.join(
            "",
            hex.formatHex(heard.greeting),
            hex.formatHex(heard.message),
            hex.formatHex(heard.answer),
            hex.formatHex(heard.receipt()));
    assertFalse(wire.contains(id.toHex().substring(0, 16)));
    assertFalse(wire.contains(hex.formatHex("correct horse".getBytes(StandardCharsets.UTF_8))));
  }

  @Test
  void forgedReceiptIsRejected() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    AnsweredClaim forger = ask(server, claim(1, 2));
    writeFrame(forger.socket, new byte[Handshake.PROOF_BYTES]);
    assertRejected(RejectReason.NOT_AUTHENTIC, forger.socket);
    assertFalse(zero.isDone());
  }

  @Test
  void disconnectedClientMayRetryButNotBeReplaced() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Handshake.Claim claim = claim(1, 2);
    ask(server, claim).socket.close();
    RendezvousException duplicate =
        assertThrows(
            RendezvousException.class, () -> client(server, 1, LONG).exchange(RankThreads::newId));
    assertTrue(
        duplicate.getMessage().contains("claims a rank that another process has"),
        duplicate.getMessage());
    AnsweredClaim again = ask(server, claim);
    writeFrame(again.socket, again.receipt());
    byte[] opened = again.opened();
    assertArrayEquals(
        RankThreads.join(zero).toBytes(), Arrays.copyOfRange(opened, 1, opened.length));
  }

  @Test
  void duplicateRankIsRejectedWithoutDelayingOthers() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Handshake.Claim claim = claim(1, 3);
    FutureTask<AnsweredClaim> first = RankThreads.start(() -> ask(server, claim));
    awaitClaim(server, 1);
    RendezvousException thrown =
        assertThrows(
            RendezvousException.class, () -> client(server, 1, LONG).exchange(RankThreads::newId));
    assertTrue(thrown.getMessage().contains("rank 1 has already arrived"), thrown.getMessage());
    FutureTask<UniqueId> two = exchange(client(server, 2, LONG));
    AnsweredClaim answered = RankThreads.join(first);
    writeFrame(answered.socket, answered.receipt());
    byte[] opened = answered.opened();
    UniqueId id = UniqueId.of(Arrays.copyOfRange(opened, 1, opened.length));
    assertEquals(id, RankThreads.join(two));
    assertEquals(id, RankThreads.join(zero));
  }

  @Test
  void wrongWorldSizeIsRejectedWithoutDelayingOthers() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    RendezvousException thrown =
        assertThrows(
            RendezvousException.class,
            () ->
                client(server, SECRET, RankInfo.of(1, 4).withTimeout(LONG))
                    .exchange(RankThreads::newId));
    assertTrue(
        thrown.getMessage().contains("rank 1 has world size 4, rank 0 has 3"), thrown.getMessage());
    assertServed(server, zero);
  }

  @Test
  void invalidRankIsRejectedWithoutDelayingOthers() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int rank : new int[] {0, 3, -1, Integer.MIN_VALUE}) {
      Socket socket = connect(server);
      Handshake handshake = Handshake.ofClient(SECRET.shared(), readFrame(socket), claim(rank, 3));
      writeFrame(socket, handshake.claimMessage());
      byte[] answer = readFrame(socket);
      byte[] opened = handshake.open(Arrays.copyOfRange(answer, 1, answer.length));
      assertEquals(RejectReason.WRONG_RANK.code(), opened[0]);
    }
    assertServed(server, zero);
  }

  @Test
  void anotherRunWithTheSameSecretGetsNoId() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    RankInfo other = RankInfo.of(1, 2).withJobId("yesterday").withTimeout(ENOUGH);
    NcclTimeoutException thrown =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, SECRET, other).exchange(RankThreads::newId));
    assertTrue(thrown.getMessage().contains("belongs to another run"), thrown.getMessage());
    assertServed(server, zero);
  }

  @Test
  void rankInAnEarlierRoundIsRejected() throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous one = client(server, 1, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    one.exchange(RankThreads::newId);
    RankThreads.join(zero);
    FutureTask<UniqueId> second = exchange(server);
    RendezvousException behind =
        assertThrows(
            RendezvousException.class, () -> client(server, 1, LONG).exchange(RankThreads::newId));
    assertTrue(behind.getMessage().contains("is behind"), behind.getMessage());
    assertEquals(one.exchange(RankThreads::newId), RankThreads.join(second));
  }

  @Test
  void invalidMessagesAreAnsweredWithTheirCodes() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Socket malformed = connect(server);
    readFrame(malformed);
    writeFrame(malformed, "GET / HTTP/1.1\r\nHost: x".getBytes(StandardCharsets.US_ASCII));
    assertRejected(RejectReason.MALFORMED, malformed);

    Socket empty = connect(server);
    readFrame(empty);
    writeFrame(empty, new byte[0]);
    assertRejected(RejectReason.MALFORMED, empty);

    Socket oversized = connect(server);
    readFrame(oversized);
    writeFrame(oversized, new byte[30_000]);
    assertRejected(RejectReason.OVERSIZED, oversized);

    Socket version = connect(server);
    byte[] message =
        Handshake.ofClient(SECRET.shared(), readFrame(version), claim(1, 3)).claimMessage();
    message[11]++;
    writeFrame(version, message);
    assertRejected(RejectReason.WRONG_VERSION, version);

    Socket longer = connect(server);
    message = Handshake.ofClient(SECRET.shared(), readFrame(longer), claim(1, 3)).claimMessage();
    writeFrame(longer, Arrays.copyOf(message, message.length - 1));
    assertRejected(RejectReason.MALFORMED, longer);
    assertServed(server, zero);
  }

  @Test
  void changedByteOfAClaimIsRejected() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int position = 12; position < Handshake.CLAIM_BYTES; position++) {
      Socket socket = connect(server);
      byte[] message =
          Handshake.ofClient(SECRET.shared(), readFrame(socket), claim(1, 2)).claimMessage();
      message[position] ^= (byte) (1 << RankThreads.RANDOM.nextInt(8));
      writeFrame(socket, message);
      assertRejected(RejectReason.NOT_AUTHENTIC, socket);
    }
    assertServed(server, zero);
  }

  @Test
  void silentAndSlowClientsAreDisconnected() throws Exception {
    TcpRendezvous server = server(4, LONG, handshakeWithin(Duration.ofSeconds(5)));
    FutureTask<UniqueId> zero = exchange(server);
    List<Socket> silent = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      silent.add(connect(server));
    }
    Socket slow = connect(server);
    FutureTask<Integer> dripping = RankThreads.start(() -> drip(slow));
    assertServed(server, zero);
    for (Socket socket : silent) {
      readFrame(socket);
      assertRejected(RejectReason.TOO_SLOW, socket);
    }
    int sent = RankThreads.join(dripping);
    assertTrue(sent < 80, () -> "a slow client could send " + sent + " bytes");
  }

  /** Sends a byte every 250 ms until the other side disconnects, at most 120 bytes. */
  private static int drip(Socket socket) throws Exception {
    OutputStream out = socket.getOutputStream();
    for (int sent = 0; sent < 120; sent++) {
      try {
        out.write(0);
      } catch (IOException e) {
        return sent;
      }
      Thread.sleep(250);
    }
    return 120;
  }

  @Test
  void excessPendingClientsAreEvicted() throws Exception {
    TcpRendezvous server =
        server(4, LONG, new IdServer.Limits(Duration.ofSeconds(20), 4, Duration.ZERO));
    FutureTask<UniqueId> zero = exchange(server);
    for (int i = 0; i < 40; i++) {
      connect(server);
    }
    awaitRejected(server, RejectReason.TOO_MANY, 36);
    assertServed(server, zero);
  }

  @Test
  void disconnectsAndNoiseDoNotDelayRanks() throws Exception {
    TcpRendezvous server = server(4, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int i = 0; i < 100; i++) {
      Socket socket = connect(server);
      byte[] noise = new byte[RankThreads.RANDOM.nextInt(400)];
      RankThreads.RANDOM.nextBytes(noise);
      socket.getOutputStream().write(noise);
      if (i % 2 == 0) {
        // Makes close() reset the connection.
        socket.setSoLinger(true, 0);
      }
      socket.close();
    }
    assertServed(server, zero);
  }
}
