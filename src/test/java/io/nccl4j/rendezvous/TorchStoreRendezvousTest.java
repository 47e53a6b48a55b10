package io.nccl4j.rendezvous;

import static java.util.stream.Collectors.toSet;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What is particular to PyTorch's store; {@link RendezvousTest} has the rest. */
@Tag("slow")
class TorchStoreRendezvousTest {
  private static final String HOST = "127.0.0.1";

  /** Just enough to connect on a busy machine. */
  private static final Duration SHORT = Duration.ofSeconds(8);

  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Optional<Secret> NO_SECRET = Optional.empty();
  private static final Optional<Secret> SECRET = Optional.of(Secret.of("correct horse battery"));

  private static Rendezvous rendezvous(int port, int rank, int size, Duration timeout) {
    return Rendezvous.torchStore(
        HOST, port, NO_SECRET, RankInfo.of(rank, size).withTimeout(timeout));
  }

  private static Rendezvous rendezvous(int port, int rank, Optional<Secret> secret) {
    return Rendezvous.torchStore(HOST, port, secret, RankInfo.of(rank, 2).withTimeout(LONG));
  }

  private static FutureTask<UniqueId> exchange(Rendezvous rendezvous) {
    return RankThreads.start(() -> rendezvous.exchange(RankThreads::newId));
  }

  /** Starts a task that ends with the test, or fails because of the failure under test. */
  private static void inBackground(Callable<?> work) {
    RankThreads.startThread(new FutureTask<>(work));
  }

  private static void assertAllRanksGetTheIdOfEachRound(int port) throws Exception {
    RankThreads.exchange(2, 1, rank -> rendezvous(port, rank, 2, LONG));
    // The same job id again: values left by the first run must not be used.
    RankThreads.exchange(2, 2, rank -> rendezvous(port, rank, 2, LONG));
    RankThreads.exchange(9, 3, rank -> rendezvous(port, rank, 9, LONG));
    RankThreads.exchange(2, 3, rank -> rendezvous(port, rank, SECRET));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void allRanksGetTheIdOfEachRoundInPyTorchsStore(boolean libuv) throws Exception {
    try (TorchProcess store = TorchProcess.store(libuv)) {
      assertAllRanksGetTheIdOfEachRound(store.port());
    }
  }

  @Test
  void exchangeLeavesOnlyEmptyValues() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      RankThreads.exchange(4, 1, rank -> rendezvous(store.port(), rank, 4, LONG));
      RankThreads.exchange(4, 2, rank -> rendezvous(store.port(), rank, 4, LONG));
      Map<String, byte[]> left = store.values();
      assertEquals(1 + 3 * 3, left.size(), () -> left.keySet().toString());
      assertEquals(Set.of(0), left.values().stream().map(value -> value.length).collect(toSet()));
    }
  }

  @Test
  void storeMayStartLater() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = free.getLocalPort();
    }
    FutureTask<UniqueId> one = exchange(rendezvous(port, 1, 2, LONG));
    Thread.sleep(100);
    try (StoreStandIn store = new StoreStandIn(port)) {
      UniqueId made = rendezvous(store.port(), 0, 2, LONG).exchange(RankThreads::newId);
      assertEquals(made, RankThreads.join(one));
    }
  }

  /** Starts a service that handles each client in the given way. */
  private static ServerSocket service(Behaviour behaviour) throws IOException {
    ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    inBackground(
        () -> {
          while (true) {
            behaviour.handle(listener.accept());
          }
        });
    return listener;
  }

  @FunctionalInterface
  private interface Behaviour {
    void handle(Socket client) throws IOException;
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void otherServiceIsReported(int rank) throws Exception {
    byte[] greeting = "HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    try (ServerSocket web = service(client -> client.getOutputStream().write(greeting));
        Rendezvous rendezvous = rendezvous(web.getLocalPort(), rank, 2, LONG)) {
      RendezvousException thrown =
          assertThrows(RendezvousException.class, () -> rendezvous.exchange(RankThreads::newId));
      String where = "the store at " + HOST + ":" + web.getLocalPort() + " failed rank " + rank;
      assertTrue(thrown.getMessage().startsWith(where), thrown.getMessage());
      String read = "not a PyTorch store: asked for the ping ";
      assertTrue(thrown.getMessage().contains(read), thrown.getMessage());
      assertTrue(
          thrown.getMessage().endsWith("it answered 'HTTP' (48 54 54 50)"), thrown.getMessage());
    }
  }

  @Test
  void closedConnectionsAreRetriedUntilTheDeadline() throws Exception {
    try (ServerSocket closing = service(Socket::close);
        Rendezvous rendezvous = rendezvous(closing.getLocalPort(), 1, 2, SHORT)) {
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(RankThreads::newId));
      String where = "the store at " + HOST + ":" + closing.getLocalPort() + " does not answer";
      assertTrue(late.getMessage().contains(where + "; last problem: "), late.getMessage());
    }
  }

  @Test
  void silentStoreTimesOut() throws Exception {
    try (ServerSocket silent = service(client -> {});
        Rendezvous rendezvous = rendezvous(silent.getLocalPort(), 0, 2, SHORT)) {
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(RankThreads::newId));
      String where = "the store at " + HOST + ":" + silent.getLocalPort() + " does not answer";
      assertTrue(late.getMessage().contains(where), late.getMessage());
      assertTrue(late.getMessage().contains("accepts connections"), late.getMessage());
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          5  | 07                      | 0 | whether it has nccl4j-
          3  | 00 00 10 00 00 00 00 10 | 0 | the size of nccl4j-
          13 | 05 06 07 08             | 1 | the ping
          """)
  void invalidAnswerIsReported(int request, String bytes, int rank, String asked) throws Exception {
    byte[] answer = HexFormat.ofDelimiter(" ").parseHex(bytes);
    try (StoreStandIn store = new StoreStandIn().override(request, answer);
        Rendezvous overridden = rendezvous(store.port(), rank, 2, LONG);
        Rendezvous other = rendezvous(store.port(), 1 - rank, 2, LONG)) {
      inBackground(() -> other.exchange(RankThreads::newId));
      RendezvousException thrown =
          assertThrows(RendezvousException.class, () -> overridden.exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains("asked for " + asked), thrown.getMessage());
      assertTrue(thrown.getMessage().endsWith("(" + bytes + ")"), thrown.getMessage());
    }
  }

  @Test
  void storeFailureEndsTheWait() throws Exception {
    StoreStandIn store = new StoreStandIn();
    try (Rendezvous one = rendezvous(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> waiting = exchange(one);
      store.awaitKey("rank-1");
      store.close();
      RendezvousException lost = RankThreads.failure(RendezvousException.class, waiting);
      String where = "the store at " + HOST + ":" + store.port() + " failed rank 1: ";
      assertTrue(lost.getMessage().startsWith(where), lost.getMessage());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "' ', 1, host is empty; it must name the host of the store",
    "h, 0, port is 0; it must be from 1 to 65535",
    "h, 65536, port is 65536; it must be from 1 to 65535"
  })
  void invalidAddressesAreRejected(String host, int port, String message) {
    RankInfo rankInfo = RankInfo.of(0, 2);
    assertEquals(
        message,
        assertThrows(
                IllegalArgumentException.class,
                () -> Rendezvous.torchStore(host, port, NO_SECRET, rankInfo))
            .getMessage());
  }

  @Test
  void torchrunRanksUseTheAgentsStore() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      // Each agent counts its own restarts only, so the counts differ.
      RankThreads.exchange(
          2,
          2,
          rank -> {
            Rendezvous rendezvous = agentOf(rank, store.port()).rendezvous(LONG);
            assertTrue(rendezvous.toString().contains(" at the store at localhost:"));
            return rendezvous;
          });
    }
  }

  private static LaunchEnvironment agentOf(int rank, int port) {
    return LaunchEnvironment.from(
        Map.of(
            "TORCHELASTIC_RUN_ID", "none",
            "TORCHELASTIC_USE_AGENT_STORE", "True",
            "TORCHELASTIC_RESTART_COUNT", "" + rank,
            "MASTER_ADDR", "localhost",
            "MASTER_PORT", "" + port,
            "WORLD_SIZE", "2",
            "RANK", "" + rank,
            "LOCAL_RANK", "0",
            "LOCAL_WORLD_SIZE", "1"));
  }
}
