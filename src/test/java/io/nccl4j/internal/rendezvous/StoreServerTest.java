package io.nccl4j.internal.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.auth.PendingConnections;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Clients that do not belong to the run get nothing and do not delay the run's ranks. */
class StoreServerTest {
  private static final String HOST = "127.0.0.1";
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final Random RANDOM = new Random(Long.getLong("test.seed", System.nanoTime()));
  private static final SharedSecret SECRET = secret("correct horse battery staple");
  private static final SharedSecret OTHER = secret("incorrect horse battery");
  private static final Token RUN = Token.ofText("run");

  private final List<AutoCloseable> open = new ArrayList<>();

  private static SharedSecret secret(String text) {
    return new SharedSecret(text.getBytes(StandardCharsets.US_ASCII));
  }

  @AfterEach
  void closeAll() throws Exception {
    for (AutoCloseable each : open.reversed()) {
      each.close();
    }
  }

  private <C extends AutoCloseable> C closing(C opened) {
    open.add(opened);
    return opened;
  }

  private static InetSocketAddress free() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.ofLiteral(HOST))) {
      return new InetSocketAddress(InetAddress.ofLiteral(HOST), socket.getLocalPort());
    }
  }

  private StoreServer server(InetSocketAddress address) throws ExchangeFailedException {
    return closing(new StoreServer(address, new JobRank(0, 4, "run"), SECRET));
  }

  private Store client(InetSocketAddress address, SharedSecret secret, String run)
      throws Exception {
    return client(address, secret, run, LONG);
  }

  private Store client(InetSocketAddress address, SharedSecret secret, String run, Duration timeout)
      throws Exception {
    JobRank self = new JobRank(1, 4, run);
    Deadline deadline = Deadline.after(timeout);
    Store client = closing(new StoreClient(HOST, address.getPort(), self, secret, "rank 0"));
    client.open(deadline);
    return client;
  }

  /** Checks that a rank of the run is served without delay. */
  private void assertServes(InetSocketAddress address) throws Exception {
    long start = System.nanoTime();
    try (Store store = client(address, SECRET, "run")) {
      byte[] value = {1, 2, 3};
      store.set("rank-1", value);
      assertArrayEquals(value, store.get("rank-1"));
      store.delete("rank-1");
      assertEquals(0, store.get("rank-1").length);
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(Duration.ofSeconds(10)) < 0, () -> "delayed by " + took);
  }

  private Socket connect(InetSocketAddress address) throws IOException {
    Socket socket = closing(new Socket(address.getAddress(), address.getPort()));
    socket.setSoTimeout(30_000);
    return socket;
  }

  private static byte[] greeting(Socket socket) throws IOException {
    return socket.getInputStream().readNBytes(Handshake.GREETING_BYTES);
  }

  /** Returns a claim with its proof. */
  private static byte[] claim(byte[] greeting, SharedSecret secret, int rank) {
    return Handshake.claim(greeting, secret, RUN, rank);
  }

  /** Sends a message; returns all that the server answers until it closes. */
  private static byte[] answer(Socket socket, byte[] message) throws IOException {
    socket.getOutputStream().write(message);
    try {
      return socket.getInputStream().readAllBytes();
    } catch (SocketException e) {
      // Reset, since the message was not read to its end.
      return new byte[0];
    }
  }

  private static void assertRefused(int verdict, Socket socket, byte[] message) throws IOException {
    assertArrayEquals(new byte[] {(byte) verdict}, answer(socket, message));
  }

  @Test
  void claimWithoutTheSecretIsRefusedAndItsRankNoted() throws Exception {
    InetSocketAddress address = free();
    StoreServer server = server(address);
    for (int rank : new int[] {2, 0, 4, -1, Integer.MIN_VALUE}) {
      Socket socket = connect(address);
      assertRefused(Handshake.WRONG_SECRET, socket, claim(greeting(socket), OTHER, rank));
    }
    assertEquals(Set.of(2), server.store().impostors().keySet());
    String report = server.store().report();
    assertTrue(report.startsWith("; rejected 5 clients: 127.0.0.1:"), report);
    assertTrue(report.contains(" claims rank 2 and does not know the secret; "), report);
    assertServes(address);
    Socket two = connect(address);
    two.getOutputStream().write(claim(greeting(two), SECRET, 2));
    assertEquals(Handshake.ADMITTED, two.getInputStream().read());
    assertEquals(Set.of(), server.store().impostors().keySet());
  }

  @Test
  void clientWithoutTheSecretFailsAtOnce() throws Exception {
    InetSocketAddress address = free();
    server(address);
    String text =
        assertThrows(ProtocolException.class, () -> client(address, OTHER, "run")).getMessage();
    assertTrue(text.startsWith("rank 1 does not know the secret of rank 0; check that"), text);
  }

  @Test
  void clientOfAnotherRunIsRefused() throws Exception {
    InetSocketAddress address = free();
    server(address);
    String text =
        assertThrows(
                SocketTimeoutException.class,
                () -> client(address, SECRET, "yesterday", Duration.ofSeconds(2)))
            .getMessage();
    assertTrue(text.contains("rank 0 there belongs to another run"), text);
    assertServes(address);
  }

  /** Answers the first client like a server that does not know the secret. */
  private int impostor(Callable<byte[]> greeting, byte[] answer) throws Exception {
    ServerSocket listener = closing(new ServerSocket(0, 1, InetAddress.ofLiteral(HOST)));
    FutureTask<Void> served =
        new FutureTask<>(
            () -> {
              try (Socket client = listener.accept()) {
                client.getOutputStream().write(greeting.call());
                client.getInputStream().readNBytes(Handshake.CLAIM_BYTES);
                client.getInputStream().readNBytes(SessionKeys.PROOF_BYTES);
                client.getOutputStream().write(answer);
                return null;
              }
            });
    Thread.ofPlatform().daemon().start(served);
    return listener.getLocalPort();
  }

  @Test
  void recordedClaimIsRefused() throws Exception {
    InetSocketAddress address = free();
    server(address);
    byte[] recorded = claim(greeting(connect(address)), SECRET, 1);
    Socket socket = connect(address);
    greeting(socket);
    assertRefused(Handshake.WRONG_SECRET, socket, recorded);
    assertServes(address);
  }

  @Test
  void changedByteOfAClaimIsRefused() throws Exception {
    InetSocketAddress address = free();
    server(address);
    int start = Handshake.HEADER_BYTES + Token.BYTES;
    for (int at = start; at < Handshake.CLAIM_BYTES + SessionKeys.PROOF_BYTES; at++) {
      Socket socket = connect(address);
      byte[] message = claim(greeting(socket), SECRET, 1);
      message[at] ^= (byte) (1 << RANDOM.nextInt(8));
      assertRefused(Handshake.WRONG_SECRET, socket, message);
    }
    assertServes(address);
  }

  @Test
  void foreignMessagesAreDisconnected() throws Exception {
    InetSocketAddress address = free();
    StoreServer server = server(address);
    Socket web = connect(address);
    greeting(web);
    byte[] get = "GET / HTTP/1.1\r\nHost: x".getBytes(StandardCharsets.US_ASCII);
    assertEquals(0, answer(web, get).length);
    Socket version = connect(address);
    byte[] message = claim(greeting(version), SECRET, 1);
    message[Handshake.HEADER_BYTES - 1]++;
    assertEquals(
        Handshake.WRONG_VERSION,
        answer(version, Arrays.copyOf(message, Handshake.HEADER_BYTES))[0]);
    String report = server.store().report();
    assertTrue(report.contains(" does not speak the protocol of nccl4j; "), report);
    assertTrue(report.endsWith(" uses another version of nccl4j"), report);
    assertServes(address);
  }

  @Test
  void invalidRequestsOfAnAdmittedClientEndItsConnection() throws Exception {
    InetSocketAddress address = free();
    server(address);
    byte[] unknown = {99};
    byte[] negative = {TorchStore.GET, -1, -1, -1, -1, -1, -1, -1, -1};
    byte[] tooLong = {TorchStore.CHECK, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0};
    for (byte[] request : List.of(unknown, negative, tooLong)) {
      Socket socket = connect(address);
      socket.getOutputStream().write(claim(greeting(socket), SECRET, 1));
      assertEquals(Handshake.ADMITTED, socket.getInputStream().read());
      assertEquals(0, answer(socket, request).length);
    }
    assertServes(address);
  }

  @Test
  void silentAndSlowClientsAreDisconnected() throws Exception {
    InetSocketAddress address = free();
    server(address);
    List<Socket> silent = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      silent.add(connect(address));
    }
    Socket slow = connect(address);
    FutureTask<Integer> dripping = new FutureTask<>(() -> drip(slow));
    Thread.ofPlatform().daemon().start(dripping);
    assertServes(address);
    for (Socket socket : silent) {
      greeting(socket);
      assertEquals(-1, socket.getInputStream().read(), "the connection is closed");
    }
    int sent = dripping.get(60, TimeUnit.SECONDS);
    assertTrue(sent < 80, () -> "a slow client could send " + sent + " bytes");
  }

  /** Sends the bytes of a header every 250 ms until the other side disconnects. */
  private static int drip(Socket socket) throws Exception {
    byte[] message = claim(greeting(socket), SECRET, 1);
    for (int sent = 0; sent < message.length; sent++) {
      try {
        socket.getOutputStream().write(message[sent]);
      } catch (IOException e) {
        return sent;
      }
      Thread.sleep(250);
    }
    return message.length;
  }

  @Test
  void oldestSilentClientsMakeRoom() throws Exception {
    System.setProperty(PendingConnections.PROPERTY, "4");
    try {
      InetSocketAddress address = free();
      StoreServer server = server(address);
      for (int i = 0; i < 40; i++) {
        // The greeting shows that it was accepted.
        greeting(connect(address));
      }
      String report = server.store().report();
      assertTrue(report.startsWith("; rejected 36 clients: 127.0.0.1:"), report);
      assertTrue(report.contains(" was dropped because too many clients did not auth"), report);
      assertServes(address);
    } finally {
      System.clearProperty(PendingConnections.PROPERTY);
    }
  }

  @Test
  void disconnectsAndNoiseDoNotDelayRanks() throws Exception {
    InetSocketAddress address = free();
    server(address);
    for (int i = 0; i < 100; i++) {
      Socket socket = connect(address);
      byte[] noise = new byte[RANDOM.nextInt(400)];
      RANDOM.nextBytes(noise);
      socket.getOutputStream().write(noise);
      if (i % 2 == 0) {
        // Makes close() reset the connection.
        socket.setSoLinger(true, 0);
      }
      socket.close();
    }
    assertServes(address);
  }

  @Test
  void clientWaitsForTheServerAndNamesAnotherOne() throws Exception {
    InetSocketAddress address = free();
    byte[] ssh =
        "SSH-2.0-OpenSSH_9.2\r\n-------------------------------"
            .getBytes(StandardCharsets.US_ASCII);
    int other = impostor(() -> ssh, new byte[0]);
    SocketTimeoutException timeout =
        assertThrows(
            SocketTimeoutException.class,
            () ->
                client(
                    new InetSocketAddress(InetAddress.ofLiteral(HOST), other),
                    SECRET,
                    "run",
                    Duration.ofMillis(1500)));
    assertTrue(timeout.getMessage().contains("rank 0 does not answer"), timeout.getMessage());
    FutureTask<Store> early = new FutureTask<>(() -> client(address, SECRET, "run"));
    Thread.ofPlatform().daemon().start(early);
    Thread.sleep(200);
    assertFalse(early.isDone());
    server(address);
    assertEquals(0, early.get(60, TimeUnit.SECONDS).get("rank-0").length);
  }

  @Test
  void portInUseIsNamedAndFreedByClose() throws Exception {
    InetSocketAddress address = free();
    StoreServer first = server(address);
    String text = assertThrows(ExchangeFailedException.class, () -> server(address)).getMessage();
    assertTrue(text.contains(":" + address.getPort() + ": "), text);
    assertTrue(text.contains("in use"), text);
    for (int again = 0; again < 50; again++) {
      first.close();
      first = server(address);
    }
    assertServes(address);
  }
}
