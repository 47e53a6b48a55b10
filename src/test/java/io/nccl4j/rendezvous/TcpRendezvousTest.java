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
import io.nccl4j.internal.rendezvous.tcp.Refusal;
import io.nccl4j.internal.util.Deadline;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class TcpRendezvousTest {
  private static final String HOST = "127.0.0.1";
  private static final Secret SECRET = Secret.of("correct horse battery staple");
  private static final Duration SHORT = Duration.ofMillis(1200);
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final Duration HANDSHAKE = Duration.ofSeconds(1);

  private final List<AutoCloseable> open = new ArrayList<>();

  @AfterEach
  void closeAll() throws Exception {
    for (AutoCloseable each : open.reversed()) {
      each.close();
    }
  }

  private TcpRendezvous server(int size, Duration timeout) {
    return server(size, timeout, new IdServer.Limits(HANDSHAKE, 64, Duration.ZERO));
  }

  private TcpRendezvous server(int size, Duration timeout, IdServer.Limits limits) {
    Member member = Member.of(0, size).withTimeout(timeout);
    TcpRendezvous place = TcpRendezvous.at(HOST, 0, SECRET.shared(), member, limits);
    open.add(place);
    return place;
  }

  private TcpRendezvous client(TcpRendezvous server, int rank, Duration timeout) {
    return client(server, SECRET, Member.of(rank, server.size()).withTimeout(timeout));
  }

  private TcpRendezvous client(TcpRendezvous server, Secret secret, Member member) {
    TcpRendezvous place = TcpRendezvous.at(HOST, server.port(), secret, member);
    open.add(place);
    return place;
  }

  private static FutureTask<UniqueId> exchange(Rendezvous place) {
    return RankThreads.start(() -> place.exchange(RankThreads::newId));
  }

  private Socket connect(TcpRendezvous server) throws IOException {
    Socket socket = new Socket(InetAddress.ofLiteral(HOST), server.port());
    socket.setSoTimeout(10_000);
    open.add(socket);
    return socket;
  }

  private static byte[] readFrame(Socket socket) throws IOException {
    InputStream in = socket.getInputStream();
    byte[] length = in.readNBytes(2);
    return length.length < 2 ? length : in.readNBytes(ByteBuffer.wrap(length).getShort());
  }

  private static void writeFrame(Socket socket, byte[] message) throws IOException {
    byte[] length = ByteBuffer.allocate(2).putShort((short) message.length).array();
    ByteArrayOutputStream framed = new ByteArrayOutputStream();
    framed.writeBytes(length);
    framed.writeBytes(message);
    socket.getOutputStream().write(framed.toByteArray());
  }

  private static Handshake.Claim claim(int rank, int size) {
    return new Handshake.Claim(
        rank, size, 1, RankBackend.UNKNOWN, Token.ofText(""), Token.random());
  }

  /** A connection that has come as far as rank 0's answer, and has not confirmed it. */
  private static final class Asked {
    private final Socket socket;
    private final Handshake handshake;
    private final byte[] greeting;
    private final byte[] message;
    private final byte[] answer;

    private Asked(Socket socket, Handshake.Claim claim) throws IOException {
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

  /** Asks by hand, until rank 0 has come to the round. */
  private Asked ask(TcpRendezvous server, Handshake.Claim claim) throws Exception {
    while (true) {
      Asked asked = new Asked(connect(server), claim);
      int answer = asked.opened()[0];
      if (answer != Refusal.ROUND_TO_COME.code() && answer != Refusal.OTHERS_MISSING.code()) {
        assertEquals(IdServer.GRANTED, answer);
        return asked;
      }
      Thread.sleep(5);
    }
  }

  private static void assertRefused(Refusal refusal, Socket socket) throws IOException {
    assertArrayEquals(
        new byte[] {IdServer.PLAIN, (byte) refusal.code()}, readFrame(socket), refusal.toString());
    assertEquals(-1, socket.getInputStream().read(), "the connection is closed");
  }

  private static void awaitTurnedAway(TcpRendezvous server, Refusal refusal, int count)
      throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(10));
    while (server.turnedAway().stream().filter(c -> c.refusal() == refusal).count() < count) {
      assertFalse(deadline.passed(), () -> refusal + " is not in " + server.turnedAway());
      Thread.sleep(5);
    }
  }

  /** The honest ranks come now and must be served, whatever else is going on. */
  private void assertServed(TcpRendezvous server, FutureTask<UniqueId> zero) throws Exception {
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
    assertTrue(took.compareTo(Duration.ofSeconds(10)) < 0, () -> "hindered for " + took);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 17, 64})
  void allRanksGetTheIdOfEachRound(int size) throws Exception {
    TcpRendezvous server = server(size, LONG);
    RankThreads.exchange(size, 3, rank -> rank == 0 ? server : client(server, rank, LONG));
  }

  @Test
  void clientsMayComeBeforeTheServer() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.ofLiteral(HOST))) {
      port = free.getLocalPort();
    }
    TcpRendezvous one =
        TcpRendezvous.at("localhost", port, SECRET, Member.of(1, 2).withTimeout(LONG));
    FutureTask<UniqueId> waiting = exchange(one);
    Thread.sleep(200);
    try (TcpRendezvous zero =
        TcpRendezvous.at("localhost", port, SECRET, Member.of(0, 2).withTimeout(LONG))) {
      UniqueId id = zero.exchange(RankThreads::newId);
      assertEquals(id, RankThreads.join(waiting));
    }
  }

  @Test
  void aClientAheadOfRankZeroWaitsForItsRound() throws Exception {
    TcpRendezvous server = server(3, LONG);
    TcpRendezvous one = client(server, 1, LONG);
    FutureTask<List<UniqueId>> two =
        RankThreads.start(
            () -> {
              try (Rendezvous place = client(server, 2, LONG)) {
                return List.of(
                    place.exchange(RankThreads::newId), place.exchange(RankThreads::newId));
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
  void rankZeroNamesTheMissingAndTheTurnedAway() throws Exception {
    TcpRendezvous server = server(6, Duration.ofMillis(1500));
    FutureTask<UniqueId> zero = exchange(server);
    FutureTask<UniqueId> two = exchange(client(server, 2, LONG));
    Socket stranger = connect(server);
    writeFrame(stranger, "GET / HTTP/1.1".getBytes(StandardCharsets.US_ASCII));
    NcclTimeoutException timeout = RankThreads.failure(NcclTimeoutException.class, zero);
    assertTrue(
        timeout.getMessage().contains("missing ranks 1, 3-5 of 6 in round 1"),
        timeout.getMessage());
    String who = "127.0.0.1:" + stranger.getLocalPort();
    assertTrue(
        timeout
            .getMessage()
            .contains("turned away 1 clients: " + who + " does not speak the protocol of nccl4j"),
        timeout.getMessage());
    assertEquals(
        "rank 0 at %s:%d has ended the exchange: it gave up after 1.5 s; missing ranks 1, 3-5 of 6"
            .formatted(HOST, server.port()),
        RankThreads.failure(RendezvousException.class, two).getMessage());
  }

  @Test
  void failedExchangeStopsListening() throws Exception {
    TcpRendezvous server = server(2, Duration.ofMillis(300));
    assertThrows(NcclTimeoutException.class, () -> server.exchange(RankThreads::newId));
    assertThrows(ConnectException.class, () -> connect(server));
  }

  private static void awaitClaim(TcpRendezvous server, int rank) throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(10));
    while (!server.come().get(rank)) {
      assertFalse(deadline.passed(), () -> "rank " + rank + " has not come");
      Thread.sleep(5);
    }
  }

  @Test
  void tcpOthersMissingIsNamedByTheRanksThatWait() throws Exception {
    TcpRendezvous server = server(4, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    NcclTimeoutException late =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, 2, SHORT).exchange(RankThreads::newId));
    assertTrue(late.getMessage().contains("(missing ranks 1, 3 of 4)"), late.getMessage());
    assertFalse(zero.isDone());
  }

  @Test
  void tcpDifferentBackendsFailOnEveryRank() throws Exception {
    TcpRendezvous server = server(4, LONG);
    List<RankBackend> backends =
        List.of(RankBackend.NCCL, RankBackend.NCCL, RankBackend.REFERENCE, RankBackend.UNKNOWN);
    RankThreads.assertMixed(
        "rank 2 uses the reference backend and rank 0 NCCL;",
        backends,
        rank -> rank == 0 ? server : client(server, rank, LONG));
  }

  @Test
  void tcpRankThatComesAfterTheRefusalIsRefusedToo() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero =
        RankThreads.start(() -> server.exchange(RankThreads::newId, RankBackend.REFERENCE));
    TcpRendezvous one = client(server, 1, LONG);
    assertThrows(
        RendezvousException.class, () -> one.exchange(RankThreads::newId, RankBackend.NCCL));
    Thread.sleep(300);
    TcpRendezvous two = client(server, 2, LONG);
    RendezvousException refused =
        assertThrows(
            RendezvousException.class,
            () -> two.exchange(RankThreads::newId, RankBackend.REFERENCE));
    assertTrue(refused.getMessage().contains("rank 1 uses NCCL"), refused.getMessage());
    RankThreads.failure(RendezvousException.class, zero);
  }

  @Test
  void othersSayThatRankZeroHasNotPublished() throws Exception {
    TcpRendezvous server = server(2, LONG);
    // Rank 0 listens, but has not called exchange.
    NcclTimeoutException silent =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, 1, SHORT).exchange(RankThreads::newId));
    assertTrue(
        silent.getMessage().contains("rank 0 has not published round 1"), silent.getMessage());
    assertTrue(silent.getMessage().contains("rank 0 is not there yet"), silent.getMessage());
    server.close();
    NcclTimeoutException absent =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, 1, SHORT).exchange(RankThreads::newId));
    assertTrue(absent.getMessage().contains("Connection refused"), absent.getMessage());
  }

  @Test
  void aWrongSecretIsRefusedAndHindersNobody() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Secret wrong = Secret.of("incorrect horse battery");
    RendezvousException refused =
        assertThrows(
            RendezvousException.class,
            () ->
                client(server, wrong, Member.of(1, 3).withTimeout(LONG))
                    .exchange(RankThreads::newId));
    assertTrue(refused.getMessage().contains("does not know the secret"), refused.getMessage());
    awaitTurnedAway(server, Refusal.NOT_AUTHENTIC, 1);
    assertServed(server, zero);
  }

  @Test
  void anImpostorOfRankZeroIsNoticed() throws Exception {
    try (TcpRendezvous impostor =
        TcpRendezvous.at(HOST, 0, Secret.of("incorrect horse battery"), Member.of(0, 2))) {
      RendezvousException refused =
          assertThrows(
              RendezvousException.class,
              () -> client(impostor, 1, LONG).exchange(RankThreads::newId));
      assertTrue(refused.getMessage().contains("secret"), refused.getMessage());
    }
  }

  @Test
  void aRecordedClaimIsWorthNothingOnAnotherConnection() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Socket first = connect(server);
    byte[] message =
        Handshake.ofClient(SECRET.shared(), readFrame(first), claim(1, 3)).claimMessage();
    Socket second = connect(server);
    readFrame(second);
    writeFrame(second, message);
    assertRefused(Refusal.NOT_AUTHENTIC, second);
    first.close();
    assertServed(server, zero);
  }

  @Test
  void aRecordedAnswerIsWorthNothingOnAnotherConnection() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Asked recorded = ask(server, claim(1, 2));
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
              HOST, replayer.getLocalPort(), SECRET, Member.of(1, 2).withTimeout(LONG));
      RendezvousException noticed =
          assertThrows(RendezvousException.class, () -> victim.exchange(RankThreads::newId));
      assertTrue(noticed.getMessage().contains("does not know the secret"), noticed.getMessage());
      RankThreads.join(replay);
    }
  }

  @Test
  void theIdAndTheSecretNeverTravelInClear() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Asked heard = ask(server, claim(1, 2));
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
  void aReceiptThatIsForgedDoesNotCount() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Asked forger = ask(server, claim(1, 2));
    writeFrame(forger.socket, new byte[Handshake.PROOF_BYTES]);
    assertRefused(Refusal.NOT_AUTHENTIC, forger.socket);
    assertFalse(zero.isDone());
  }

  @Test
  void aClientThatBrokeOffMayComeAgainAndNoOtherInItsPlace() throws Exception {
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
    Asked again = ask(server, claim);
    writeFrame(again.socket, again.receipt());
    byte[] opened = again.opened();
    assertArrayEquals(
        RankThreads.join(zero).toBytes(), Arrays.copyOfRange(opened, 1, opened.length));
  }

  @Test
  void aSecondClaimantOfARankIsRefusedAndHindersNobody() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Handshake.Claim claim = claim(1, 3);
    FutureTask<Asked> first = RankThreads.start(() -> ask(server, claim));
    awaitClaim(server, 1);
    RendezvousException refused =
        assertThrows(
            RendezvousException.class, () -> client(server, 1, LONG).exchange(RankThreads::newId));
    assertTrue(refused.getMessage().contains("rank 1 has come before"), refused.getMessage());
    FutureTask<UniqueId> two = exchange(client(server, 2, LONG));
    Asked asked = RankThreads.join(first);
    writeFrame(asked.socket, asked.receipt());
    byte[] opened = asked.opened();
    UniqueId id = UniqueId.of(Arrays.copyOfRange(opened, 1, opened.length));
    assertEquals(id, RankThreads.join(two));
    assertEquals(id, RankThreads.join(zero));
  }

  @Test
  void aWrongWorldSizeIsRefusedAndHindersNobody() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    RendezvousException refused =
        assertThrows(
            RendezvousException.class,
            () ->
                client(server, SECRET, Member.of(1, 4).withTimeout(LONG))
                    .exchange(RankThreads::newId));
    assertTrue(
        refused.getMessage().contains("rank 1 has world size 4, rank 0 3"), refused.getMessage());
    assertServed(server, zero);
  }

  @Test
  void aRankThatIsNoneIsRefusedAndHindersNobody() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int rank : new int[] {0, 3, -1, Integer.MIN_VALUE}) {
      Socket socket = connect(server);
      Handshake handshake = Handshake.ofClient(SECRET.shared(), readFrame(socket), claim(rank, 3));
      writeFrame(socket, handshake.claimMessage());
      byte[] answer = readFrame(socket);
      byte[] opened = handshake.open(Arrays.copyOfRange(answer, 1, answer.length));
      assertEquals(Refusal.WRONG_RANK.code(), opened[0]);
    }
    assertServed(server, zero);
  }

  @Test
  void anotherRunWithTheSameSecretGetsNoId() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Member other = Member.of(1, 2).withRun("yesterday").withTimeout(SHORT);
    NcclTimeoutException refused =
        assertThrows(
            NcclTimeoutException.class,
            () -> client(server, SECRET, other).exchange(RankThreads::newId));
    assertTrue(refused.getMessage().contains("belongs to another run"), refused.getMessage());
    assertServed(server, zero);
  }

  @Test
  void aRankThatIsBehindIsRefused() throws Exception {
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
  void malformedOversizedAndOtherVersionsAreAnsweredWithTheirCodes() throws Exception {
    TcpRendezvous server = server(3, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    Socket malformed = connect(server);
    readFrame(malformed);
    writeFrame(malformed, "GET / HTTP/1.1\r\nHost: x".getBytes(StandardCharsets.US_ASCII));
    assertRefused(Refusal.MALFORMED, malformed);

    Socket empty = connect(server);
    readFrame(empty);
    writeFrame(empty, new byte[0]);
    assertRefused(Refusal.MALFORMED, empty);

    Socket oversized = connect(server);
    readFrame(oversized);
    writeFrame(oversized, new byte[30_000]);
    assertRefused(Refusal.OVERSIZED, oversized);

    Socket version = connect(server);
    byte[] message =
        Handshake.ofClient(SECRET.shared(), readFrame(version), claim(1, 3)).claimMessage();
    message[11]++;
    writeFrame(version, message);
    assertRefused(Refusal.WRONG_VERSION, version);

    Socket longer = connect(server);
    message = Handshake.ofClient(SECRET.shared(), readFrame(longer), claim(1, 3)).claimMessage();
    writeFrame(longer, Arrays.copyOf(message, message.length - 1));
    assertRefused(Refusal.MALFORMED, longer);
    assertServed(server, zero);
  }

  @Test
  void noChangedByteOfAClaimIsAccepted() throws Exception {
    TcpRendezvous server = server(2, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int position = 12; position < Handshake.CLAIM_BYTES; position++) {
      Socket socket = connect(server);
      byte[] message =
          Handshake.ofClient(SECRET.shared(), readFrame(socket), claim(1, 2)).claimMessage();
      message[position] ^= (byte) (1 << RankThreads.RANDOM.nextInt(8));
      writeFrame(socket, message);
      assertRefused(Refusal.NOT_AUTHENTIC, socket);
    }
    assertServed(server, zero);
  }

  @Test
  void silentAndSlowClientsAreDroppedAndHinderNobody() throws Exception {
    TcpRendezvous server = server(4, LONG);
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
      assertRefused(Refusal.TOO_SLOW, socket);
    }
    int sent = RankThreads.join(dripping);
    assertTrue(sent < 100, () -> "a slow client could send " + sent + " bytes");
  }

  /** Sends a byte every 50 ms until the other side has had enough, 200 bytes at most. */
  private static int drip(Socket socket) throws Exception {
    OutputStream out = socket.getOutputStream();
    for (int sent = 0; sent < 200; sent++) {
      try {
        out.write(0);
      } catch (IOException e) {
        return sent;
      }
      Thread.sleep(50);
    }
    return 200;
  }

  @Test
  void moreStrangersThanRankZeroTakesHinderNobody() throws Exception {
    TcpRendezvous server =
        server(4, LONG, new IdServer.Limits(Duration.ofSeconds(20), 4, Duration.ZERO));
    FutureTask<UniqueId> zero = exchange(server);
    for (int i = 0; i < 40; i++) {
      connect(server);
    }
    awaitTurnedAway(server, Refusal.TOO_MANY, 36);
    assertServed(server, zero);
  }

  @Test
  void clientsThatLeaveOrSendNoiseHinderNobody() throws Exception {
    TcpRendezvous server = server(4, LONG);
    FutureTask<UniqueId> zero = exchange(server);
    for (int i = 0; i < 100; i++) {
      Socket socket = connect(server);
      byte[] noise = new byte[RankThreads.RANDOM.nextInt(400)];
      RankThreads.RANDOM.nextBytes(noise);
      socket.getOutputStream().write(noise);
      if (i % 2 == 0) {
        // Closing then resets the connection.
        socket.setSoLinger(true, 0);
      }
      socket.close();
    }
    assertServed(server, zero);
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
              HOST, service.getLocalPort(), SECRET, Member.of(1, 2).withTimeout(SHORT));
      NcclTimeoutException timeout =
          assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(timeout.getMessage().contains("is not nccl4j"), timeout.getMessage());
      assertFalse(greeter.isDone());
    }
  }

  @Test
  void aServerThatAcceptsAndSaysNothingEndsAtTheDeadline() throws Exception {
    try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.ofLiteral(HOST))) {
      TcpRendezvous one =
          TcpRendezvous.at(HOST, mute.getLocalPort(), SECRET, Member.of(1, 2).withTimeout(SHORT));
      long start = System.nanoTime();
      assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(System.nanoTime() - start < Duration.ofSeconds(5).toNanos());
    }
  }

  @Test
  void aTakenPortIsNamed() throws Exception {
    TcpRendezvous server = server(2, LONG);
    RendezvousException taken =
        assertThrows(
            RendezvousException.class,
            () -> TcpRendezvous.at(HOST, server.port(), SECRET, Member.of(0, 2)));
    assertTrue(taken.getMessage().contains(":" + server.port()), taken.getMessage());
    assertTrue(taken.getMessage().contains("in use"), taken.getMessage());
  }

  @Test
  void anUnknownHostIsNamed() {
    TcpRendezvous one =
        TcpRendezvous.at("no-such-host.invalid", 4711, SECRET, Member.of(1, 2).withTimeout(SHORT));
    NcclTimeoutException timeout =
        assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
    assertTrue(timeout.getMessage().contains("no-such-host.invalid"), timeout.getMessage());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void anInterruptEndsTheWaitAndIsKept(int rank) throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous place = rank == 0 ? server : client(server, rank, LONG);
    FutureTask<Boolean> task =
        new FutureTask<>(
            () -> {
              assertThrows(RendezvousException.class, () -> place.exchange(RankThreads::newId));
              return Thread.currentThread().isInterrupted();
            });
    Thread thread = RankThreads.startThread(task);
    Thread.sleep(RankThreads.RANDOM.nextInt(100));
    thread.interrupt();
    assertEquals(true, RankThreads.join(task));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void closingEndsTheWait(int rank) throws Exception {
    TcpRendezvous server = server(2, LONG);
    TcpRendezvous place = rank == 0 ? server : client(server, rank, LONG);
    FutureTask<UniqueId> task = exchange(place);
    Thread.sleep(100);
    place.close();
    RendezvousException closed = RankThreads.failure(RendezvousException.class, task);
    assertTrue(closed.getMessage().contains("was closed"), closed.getMessage());
  }

  @Test
  void closingFreesThePortAtOnce() {
    TcpRendezvous server = server(2, LONG);
    server.close();
    server.close();
    for (int again = 0; again < 50; again++) {
      try (TcpRendezvous next = TcpRendezvous.at(HOST, server.port(), SECRET, Member.of(0, 2))) {
        assertEquals(server.port(), next.port());
      }
    }
  }

  @Test
  void withoutASecretOnlyLoopbackIsListenedTo() throws Exception {
    Member member = Member.of(0, 2).withTimeout(LONG);
    try (TcpRendezvous server = TcpRendezvous.onLoopback(0, member);
        TcpRendezvous one =
            TcpRendezvous.onLoopback(server.port(), Member.of(1, 2).withTimeout(LONG))) {
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
    Member one = Member.of(1, 2);
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
