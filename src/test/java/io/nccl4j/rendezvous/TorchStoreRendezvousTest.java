package io.nccl4j.rendezvous;

import static java.util.stream.Collectors.toSet;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
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

@Tag("slow")
class TorchStoreRendezvousTest {
  private static final String HOST = "127.0.0.1";

  /** Just enough to connect on a busy machine. */
  private static final Duration SHORT = Duration.ofSeconds(8);

  /** Just enough for a rank that has arrived, on a busy machine. */
  private static final Duration ENOUGH = Duration.ofSeconds(12);

  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Optional<Secret> NO_SECRET = Optional.empty();
  private static final Optional<Secret> SECRET = Optional.of(Secret.of("correct horse battery"));

  private static TorchStoreRendezvous rendezvous(int port, int rank, int size, Duration timeout) {
    return TorchStoreRendezvous.at(
        HOST, port, NO_SECRET, RankInfo.of(rank, size).withTimeout(timeout));
  }

  private static TorchStoreRendezvous rendezvous(int port, int rank, Optional<Secret> secret) {
    return TorchStoreRendezvous.at(HOST, port, secret, RankInfo.of(rank, 2).withTimeout(LONG));
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
  void allRanksGetTheIdOfEachRoundInTheStandIn() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      assertAllRanksGetTheIdOfEachRound(store.port());
    }
  }

  @Test
  void exchangeLeavesOnlyAnEmptyValuePerRank() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      RankThreads.exchange(4, 1, rank -> rendezvous(store.port(), rank, 4, LONG));
      String prefix = "nccl4j/" + Token.ofText("").toHex() + "/4 ranks/round 1/rank ";
      Map<String, byte[]> left = store.values();
      assertEquals(Set.of(prefix + 1, prefix + 2, prefix + 3), left.keySet());
      assertEquals(Set.of(0), left.values().stream().map(value -> value.length).collect(toSet()));
    }
  }

  /** Returns the token of the only announcement in a store, as used in keys. */
  private static String announcedToken(StoreStandIn store) {
    byte[] announced = store.values().values().iterator().next();
    return HexFormat.of().formatHex(announced, Integer.BYTES, Integer.BYTES + Token.BYTES);
  }

  @Test
  void restartedRankGetsANewAnswer() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = rendezvous(store.port(), 0, 2, LONG);
        Rendezvous dead = rendezvous(store.port(), 1, 2, LONG);
        Rendezvous again = rendezvous(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> killed = new FutureTask<>(() -> dead.exchange(RankThreads::newId));
      Thread thread = RankThreads.startThread(killed);
      store.awaitKey("rank 1");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      String announced = announcedToken(store);
      FutureTask<UniqueId> made = exchange(zero);
      store.awaitKey("answer to " + announced);
      assertEquals(again.exchange(RankThreads::newId), RankThreads.join(made));
    }
  }

  @Test
  void idOfAFailedRunIsNotTaken() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      FutureTask<UniqueId> killed =
          new FutureTask<>(() -> rendezvous(store.port(), 2, 3, LONG).exchange(RankThreads::newId));
      Thread thread = RankThreads.startThread(killed);
      store.awaitKey("rank 2");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      FutureTask<UniqueId> early = exchange(rendezvous(store.port(), 1, 3, LONG));
      store.awaitKey("rank 1");
      UniqueId old = RankThreads.newId();
      try (Rendezvous zero = rendezvous(store.port(), 0, 3, ENOUGH)) {
        NcclTimeoutException late =
            assertThrows(NcclTimeoutException.class, () -> zero.exchange(() -> old));
        String missing = "missing rank 2 of 3 (rank 2 announced, not confirmed) in round 1";
        assertTrue(late.getMessage().contains(missing), late.getMessage());
      }
      assertEquals(old, RankThreads.join(early));
      RankThreads.exchange(3, 1, rank -> rendezvous(store.port(), rank, 3, LONG));
    }
  }

  @Test
  void missingRanksAreNamed() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = rendezvous(store.port(), 0, 4, ENOUGH)) {
      FutureTask<UniqueId> one = exchange(rendezvous(store.port(), 1, 4, LONG));
      store.awaitKey("rank 1");
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> zero.exchange(RankThreads::newId));
      String missing =
          "missing ranks 2-3 of 4 (rank 1 announced, not confirmed) in round 1 at the store at "
              + HOST
              + ":"
              + store.port();
      assertTrue(late.getMessage().contains(missing), late.getMessage());
      assertFalse(one.isDone(), "no rank gets the id before all have arrived");
      IllegalStateException used =
          assertThrows(IllegalStateException.class, () -> zero.exchange(RankThreads::newId));
      assertTrue(used.getMessage().contains("all ranks must create a new one"), used.getMessage());
    }
  }

  @Test
  void torchStoreDifferentBackendsFailOnEveryRank() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      RankThreads.assertBackendMismatch(
          "rank 2 uses the reference backend and rank 0 NCCL;",
          List.of(RankBackend.NCCL, RankBackend.NCCL, RankBackend.REFERENCE),
          rank -> rendezvous(store.port(), rank, 3, LONG));
      RankThreads.exchange(3, 1, rank -> rendezvous(store.port(), rank, 3, LONG));
    }
  }

  @Test
  void backendMismatchIsNotDelayedByMissingRanks() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      FutureTask<UniqueId> one =
          RankThreads.start(
              () ->
                  rendezvous(store.port(), 1, 3, LONG)
                      .exchange(RankThreads::newId, RankBackend.REFERENCE));
      long start = System.nanoTime();
      try (TorchStoreRendezvous zero = rendezvous(store.port(), 0, 3, Duration.ofSeconds(40))) {
        RendezvousException mixed =
            assertThrows(
                RendezvousException.class,
                () -> zero.exchange(RankThreads::newId, RankBackend.NCCL));
        String expected = "rank 1 uses the reference backend and rank 0 NCCL;";
        assertTrue(mixed.getMessage().contains(expected), mixed.getMessage());
      }
      Duration took = Duration.ofNanos(System.nanoTime() - start);
      assertTrue(took.compareTo(Duration.ofSeconds(20)) < 0, () -> "only after " + took);
      RankThreads.failure(RendezvousException.class, one);
    }
  }

  @Test
  void announcementOfAnotherVersionIsNamed() throws Exception {
    // An empty value, two formats without a version, and one as long as the current format.
    List<Integer> lengths = List.of(0, 16, 20, 24);
    try (StoreStandIn store = new StoreStandIn()) {
      // All at once, since each waits for its whole timeout.
      List<FutureTask<UniqueId>> zeros = new ArrayList<>();
      for (int length : lengths) {
        String job = "job " + length;
        String name = "nccl4j/" + Token.ofText(job).toHex() + "/2 ranks/round 1/rank 1";
        store.set(name, new byte[length]);
        RankInfo rankInfo = RankInfo.of(0, 2).withJobId(job).withTimeout(SHORT);
        zeros.add(exchange(TorchStoreRendezvous.at(HOST, store.port(), NO_SECRET, rankInfo)));
      }
      for (int i = 0; i < lengths.size(); i++) {
        NcclTimeoutException late = RankThreads.failure(NcclTimeoutException.class, zeros.get(i));
        String version =
            lengths.get(i) == 0 ? "" : " (rank 1 announced by another version of nccl4j)";
        String missing = "missing rank 1 of 2" + version + " in round 1 at the store";
        assertTrue(late.getMessage().contains(missing), late.getMessage());
      }
    }
  }

  @Test
  void backendOfARestartedRankIsIgnored() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        TorchStoreRendezvous zero = rendezvous(store.port(), 0, 2, LONG);
        TorchStoreRendezvous dead = rendezvous(store.port(), 1, 2, LONG);
        TorchStoreRendezvous again = rendezvous(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> killed =
          new FutureTask<>(() -> dead.exchange(RankThreads::newId, RankBackend.REFERENCE));
      Thread thread = RankThreads.startThread(killed);
      store.awaitKey("rank 1");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      String announced = announcedToken(store);
      FutureTask<UniqueId> made =
          RankThreads.start(() -> zero.exchange(RankThreads::newId, RankBackend.NCCL));
      store.awaitKey("answer to " + announced);
      assertEquals(again.exchange(RankThreads::newId, RankBackend.NCCL), RankThreads.join(made));
    }
  }

  @Test
  void missingRankZeroIsNamed() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous one = rendezvous(store.port(), 1, 2, SHORT)) {
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      String missing = "rank 0 has not published round 1 in the store at " + HOST;
      assertTrue(late.getMessage().contains(missing), late.getMessage());
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
          5  | 07                      | 0 | whether it has nccl4j/
          3  | 00 00 10 00 00 00 00 10 | 0 | the size of nccl4j/
          8  | 09 00 00 00 00 00 00 09 | 0 | how many of nccl4j/
          6  | 01                      | 1 | a wait for nccl4j/
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
      store.awaitKey("rank 1");
      store.close();
      RendezvousException lost = RankThreads.failure(RendezvousException.class, waiting);
      String where = "the store at " + HOST + ":" + store.port() + " failed rank 1: ";
      assertTrue(lost.getMessage().startsWith(where), lost.getMessage());
    }
  }

  @Test
  void closeEndsTheWait() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      Rendezvous one = rendezvous(store.port(), 1, 2, LONG);
      FutureTask<UniqueId> waiting = exchange(one);
      store.awaitKey("rank 1");
      one.close();
      RendezvousException closed = RankThreads.failure(RendezvousException.class, waiting);
      assertTrue(closed.getMessage().contains("was closed while"), closed.getMessage());
    }
  }

  @Test
  void interruptEndsTheWaitAndIsPreserved() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous one = rendezvous(store.port(), 1, 2, LONG)) {
      FutureTask<Boolean> waiting =
          new FutureTask<>(
              () -> {
                assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
                return Thread.currentThread().isInterrupted();
              });
      Thread thread = RankThreads.startThread(waiting);
      store.awaitKey("rank 1");
      thread.interrupt();
      assertTrue(RankThreads.join(waiting));
    }
  }

  private static boolean isPlaintext(UniqueId id, Collection<byte[]> values) {
    HexFormat hex = HexFormat.of();
    return values.stream().anyMatch(value -> hex.formatHex(value).contains(id.toHex()));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void secretHidesTheId(boolean secret) throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = rendezvous(store.port(), 0, secret ? SECRET : NO_SECRET);
        Rendezvous one = rendezvous(store.port(), 1, secret ? SECRET : NO_SECRET)) {
      UniqueId id = RankThreads.newId();
      FutureTask<UniqueId> stopped = exchange(one);
      store.awaitKey("rank 1");
      // Rank 1 reads its own announcement instead, so that the answer stays in the store.
      store.override(StoreStandIn.GET, sized(store.values().values().iterator().next()));
      inBackground(() -> zero.exchange(() -> id));
      RankThreads.failure(RendezvousException.class, stopped);
      assertEquals(!secret, isPlaintext(id, store.values().values()));
    }
  }

  private static byte[] sized(byte[] value) {
    byte[] sized = new byte[Long.BYTES + value.length];
    sized[0] = (byte) value.length;
    System.arraycopy(value, 0, sized, Long.BYTES, value.length);
    return sized;
  }

  @Test
  void wrongSecretCannotDecryptTheId() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = rendezvous(store.port(), 0, SECRET);
        Rendezvous one =
            rendezvous(store.port(), 1, Optional.of(Secret.of("incorrect horse battery")))) {
      inBackground(() -> zero.exchange(RankThreads::newId));
      RendezvousException thrown =
          assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains("not sealed with the secret"), thrown.getMessage());
    }
  }

  @ParameterizedTest
  @CsvSource({"0, are not a sealed id", "1, which rank 1 cannot decrypt"})
  void secretOnOneRankOnlyIsReported(int without, String says) throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = rendezvous(store.port(), 0, without == 0 ? NO_SECRET : SECRET);
        Rendezvous one = rendezvous(store.port(), 1, without == 1 ? NO_SECRET : SECRET)) {
      inBackground(() -> zero.exchange(RankThreads::newId));
      RendezvousException thrown =
          assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains(says), thrown.getMessage());
      assertTrue(thrown.getMessage().contains("NCCL4J_SECRET"), thrown.getMessage());
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
                () -> TorchStoreRendezvous.at(host, port, NO_SECRET, rankInfo))
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
            assertInstanceOf(TorchStoreRendezvous.class, rendezvous);
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
