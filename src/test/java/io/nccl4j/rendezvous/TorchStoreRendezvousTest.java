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
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TorchStoreRendezvousTest {
  private static final String HOST = "127.0.0.1";
  private static final Duration SHORT = Duration.ofSeconds(4);

  /** What a rank that is there needs on a busy machine, and no more. */
  private static final Duration ENOUGH = Duration.ofSeconds(12);

  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Optional<Secret> NO_SECRET = Optional.empty();
  private static final Optional<Secret> SECRET = Optional.of(Secret.of("correct horse battery"));

  private static TorchStoreRendezvous place(int port, int rank, int size, Duration timeout) {
    return TorchStoreRendezvous.at(
        HOST, port, NO_SECRET, RankInfo.of(rank, size).withTimeout(timeout));
  }

  private static TorchStoreRendezvous place(int port, int rank, Optional<Secret> secret) {
    return TorchStoreRendezvous.at(HOST, port, secret, RankInfo.of(rank, 2).withTimeout(LONG));
  }

  private static FutureTask<UniqueId> exchange(Rendezvous place) {
    return RankThreads.start(() -> place.exchange(RankThreads::newId));
  }

  /** Starts what ends when the test does, or fails because of what the test looks at. */
  private static void inBackground(Callable<?> work) {
    RankThreads.startThread(new FutureTask<>(work));
  }

  private static void everyRankGetsTheIdsOfEachRound(int port) throws Exception {
    RankThreads.exchange(2, 1, rank -> place(port, rank, 2, LONG));
    // The same run again: what the first left must not be taken.
    RankThreads.exchange(2, 2, rank -> place(port, rank, 2, LONG));
    RankThreads.exchange(9, 3, rank -> place(port, rank, 9, LONG));
    RankThreads.exchange(2, 3, rank -> place(port, rank, SECRET));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void everyRankGetsTheIdsOfEachRoundInAStoreOfPyTorch(boolean libuv) throws Exception {
    try (TorchProcess store = TorchProcess.store(libuv)) {
      everyRankGetsTheIdsOfEachRound(store.port());
    }
  }

  @Test
  void everyRankGetsTheIdsOfEachRoundInTheStandIn() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      everyRankGetsTheIdsOfEachRound(store.port());
    }
  }

  @Test
  void ranksThatMeetLeaveNothingButAnEmptyValueEach() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      RankThreads.exchange(4, 1, rank -> place(store.port(), rank, 4, LONG));
      String prefix = "nccl4j/" + Token.ofText("").toHex() + "/4 ranks/round 1/rank ";
      Map<String, byte[]> left = store.values();
      assertEquals(Set.of(prefix + 1, prefix + 2, prefix + 3), left.keySet());
      assertEquals(Set.of(0), left.values().stream().map(value -> value.length).collect(toSet()));
    }
  }

  /** Returns the token of the one announcement in a store, as it is in the names of values. */
  private static String announcedToken(StoreStandIn store) {
    byte[] announced = store.values().values().iterator().next();
    return HexFormat.of().formatHex(announced, Integer.BYTES, Integer.BYTES + Token.BYTES);
  }

  @Test
  void aRankThatIsStartedAgainIsAnsweredAnew() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, 2, LONG);
        Rendezvous dead = place(store.port(), 1, 2, LONG);
        Rendezvous again = place(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> killed = new FutureTask<>(() -> dead.exchange(RankThreads::newId));
      Thread thread = RankThreads.startThread(killed);
      store.awaitName("rank 1");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      String announced = announcedToken(store);
      FutureTask<UniqueId> made = exchange(zero);
      store.awaitName("answer to " + announced);
      assertEquals(again.exchange(RankThreads::newId), RankThreads.join(made));
    }
  }

  @Test
  void anIdOfAGroupThatFailedIsTakenByNobody() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      FutureTask<UniqueId> killed =
          new FutureTask<>(() -> place(store.port(), 2, 3, LONG).exchange(RankThreads::newId));
      Thread thread = RankThreads.startThread(killed);
      store.awaitName("rank 2");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      FutureTask<UniqueId> early = exchange(place(store.port(), 1, 3, LONG));
      store.awaitName("rank 1");
      UniqueId old = RankThreads.newId();
      try (Rendezvous zero = place(store.port(), 0, 3, ENOUGH)) {
        NcclTimeoutException late =
            assertThrows(NcclTimeoutException.class, () -> zero.exchange(() -> old));
        String missing = "missing rank 2 of 3 (rank 2 announced, not confirmed) in round 1";
        assertTrue(late.getMessage().contains(missing), late.getMessage());
      }
      assertEquals(old, RankThreads.join(early));
      RankThreads.exchange(3, 1, rank -> place(store.port(), rank, 3, LONG));
    }
  }

  @Test
  void ranksThatNeverComeAreNamed() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, 4, ENOUGH)) {
      FutureTask<UniqueId> one = exchange(place(store.port(), 1, 4, LONG));
      store.awaitName("rank 1");
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> zero.exchange(RankThreads::newId));
      String missing =
          "missing ranks 2-3 of 4 (rank 1 announced, not confirmed) in round 1 at the store at "
              + HOST
              + ":"
              + store.port();
      assertTrue(late.getMessage().contains(missing), late.getMessage());
      assertFalse(one.isDone(), "no rank gets the id before all have come");
      IllegalStateException used =
          assertThrows(IllegalStateException.class, () -> zero.exchange(RankThreads::newId));
      assertTrue(used.getMessage().contains("all ranks must create a new one"), used.getMessage());
    }
  }

  @Test
  void torchStoreDifferentBackendsFailOnEveryRank() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      RankThreads.assertMixed(
          "rank 2 uses the reference backend and rank 0 NCCL;",
          List.of(RankBackend.NCCL, RankBackend.NCCL, RankBackend.REFERENCE),
          rank -> place(store.port(), rank, 3, LONG));
      RankThreads.exchange(3, 1, rank -> place(store.port(), rank, 3, LONG));
    }
  }

  @Test
  void torchStoreMismatchIsNotHeldUpByMissingRanks() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      FutureTask<UniqueId> one =
          RankThreads.start(
              () ->
                  place(store.port(), 1, 3, LONG)
                      .exchange(RankThreads::newId, RankBackend.REFERENCE));
      long start = System.nanoTime();
      try (TorchStoreRendezvous zero = place(store.port(), 0, 3, Duration.ofSeconds(40))) {
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

  /** What a round leaves, two forms without a version, and one as long as today's. */
  @ParameterizedTest
  @ValueSource(ints = {0, 16, 20, 24})
  void announcementOfAnotherVersionIsNamed(int length) throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, 2, SHORT)) {
      String name = "nccl4j/" + Token.ofText("").toHex() + "/2 ranks/round 1/rank 1";
      store.set(name, new byte[length]);
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> zero.exchange(RankThreads::newId));
      String version =
          length == 0 ? "" : " (rank 1 announced in the form of another version of nccl4j)";
      String missing = "missing rank 1 of 2" + version + " in round 1 at the store";
      assertTrue(late.getMessage().contains(missing), late.getMessage());
    }
  }

  @Test
  void torchStoreBackendOfARestartedRankIsNotCounted() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        TorchStoreRendezvous zero = place(store.port(), 0, 2, LONG);
        TorchStoreRendezvous dead = place(store.port(), 1, 2, LONG);
        TorchStoreRendezvous again = place(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> killed =
          new FutureTask<>(() -> dead.exchange(RankThreads::newId, RankBackend.REFERENCE));
      Thread thread = RankThreads.startThread(killed);
      store.awaitName("rank 1");
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, killed);
      String announced = announcedToken(store);
      FutureTask<UniqueId> made =
          RankThreads.start(() -> zero.exchange(RankThreads::newId, RankBackend.NCCL));
      store.awaitName("answer to " + announced);
      assertEquals(again.exchange(RankThreads::newId, RankBackend.NCCL), RankThreads.join(made));
    }
  }

  @Test
  void aRankZeroThatNeverComesIsNamed() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous one = place(store.port(), 1, 2, SHORT)) {
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> one.exchange(RankThreads::newId));
      String missing = "rank 0 has not published round 1 in the store at " + HOST;
      assertTrue(late.getMessage().contains(missing), late.getMessage());
    }
  }

  @Test
  void aStoreMayComeLater() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = free.getLocalPort();
    }
    FutureTask<UniqueId> one = exchange(place(port, 1, 2, LONG));
    Thread.sleep(100);
    try (StoreStandIn store = new StoreStandIn(port)) {
      UniqueId made = place(store.port(), 0, 2, LONG).exchange(RankThreads::newId);
      assertEquals(made, RankThreads.join(one));
    }
  }

  /** Listens, and does so with each client. */
  private static ServerSocket stranger(Behaviour behaviour) throws IOException {
    ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    inBackground(
        () -> {
          while (true) {
            behaviour.meet(listener.accept());
          }
        });
    return listener;
  }

  @FunctionalInterface
  private interface Behaviour {
    void meet(Socket client) throws IOException;
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void whatIsNoStoreIsShown(int rank) throws Exception {
    byte[] greeting = "HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    try (ServerSocket web = stranger(client -> client.getOutputStream().write(greeting));
        Rendezvous rendezvous = place(web.getLocalPort(), rank, 2, LONG)) {
      RendezvousException refused =
          assertThrows(RendezvousException.class, () -> rendezvous.exchange(RankThreads::newId));
      String where = "the store at " + HOST + ":" + web.getLocalPort() + " failed rank " + rank;
      assertTrue(refused.getMessage().startsWith(where), refused.getMessage());
      String read = "no store of PyTorch: asked for the ping ";
      assertTrue(refused.getMessage().contains(read), refused.getMessage());
      assertTrue(
          refused.getMessage().endsWith("it answered 'HTTP' (48 54 54 50)"), refused.getMessage());
    }
  }

  @Test
  void aStrangerThatClosesIsWaitedForUntilTheDeadline() throws Exception {
    try (ServerSocket closing = stranger(Socket::close);
        Rendezvous rendezvous = place(closing.getLocalPort(), 1, 2, SHORT)) {
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(RankThreads::newId));
      String where = "the store at " + HOST + ":" + closing.getLocalPort() + " does not answer";
      assertTrue(late.getMessage().contains(where + "; lastly: "), late.getMessage());
    }
  }

  @Test
  void aStoreThatNeverAnswersIsWaitedForUntilTheDeadline() throws Exception {
    try (ServerSocket silent = stranger(client -> {});
        Rendezvous rendezvous = place(silent.getLocalPort(), 0, 2, SHORT)) {
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
  void nonsenseLaterOnIsShownToo(int request, String bytes, int rank, String asked)
      throws Exception {
    byte[] answer = HexFormat.ofDelimiter(" ").parseHex(bytes);
    try (StoreStandIn store = new StoreStandIn().spoil(request, answer);
        Rendezvous spoilt = place(store.port(), rank, 2, LONG);
        Rendezvous other = place(store.port(), 1 - rank, 2, LONG)) {
      inBackground(() -> other.exchange(RankThreads::newId));
      RendezvousException refused =
          assertThrows(RendezvousException.class, () -> spoilt.exchange(RankThreads::newId));
      assertTrue(refused.getMessage().contains("asked for " + asked), refused.getMessage());
      assertTrue(refused.getMessage().endsWith("(" + bytes + ")"), refused.getMessage());
    }
  }

  @Test
  void aStoreThatDiesEndsTheWait() throws Exception {
    StoreStandIn store = new StoreStandIn();
    try (Rendezvous one = place(store.port(), 1, 2, LONG)) {
      FutureTask<UniqueId> waiting = exchange(one);
      store.awaitName("rank 1");
      store.close();
      RendezvousException lost = RankThreads.failure(RendezvousException.class, waiting);
      String where = "the store at " + HOST + ":" + store.port() + " failed rank 1: ";
      assertTrue(lost.getMessage().startsWith(where), lost.getMessage());
    }
  }

  @Test
  void closingEndsAWait() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      Rendezvous one = place(store.port(), 1, 2, LONG);
      FutureTask<UniqueId> waiting = exchange(one);
      store.awaitName("rank 1");
      one.close();
      RendezvousException closed = RankThreads.failure(RendezvousException.class, waiting);
      assertTrue(closed.getMessage().contains("was closed while"), closed.getMessage());
    }
  }

  @Test
  void anInterruptEndsAWaitAndStays() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous one = place(store.port(), 1, 2, LONG)) {
      FutureTask<Boolean> waiting =
          new FutureTask<>(
              () -> {
                assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
                return Thread.currentThread().isInterrupted();
              });
      Thread thread = RankThreads.startThread(waiting);
      store.awaitName("rank 1");
      thread.interrupt();
      assertTrue(RankThreads.join(waiting));
    }
  }

  private static boolean inTheClear(UniqueId id, Collection<byte[]> values) {
    HexFormat hex = HexFormat.of();
    return values.stream().anyMatch(value -> hex.formatHex(value).contains(id.toHex()));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aSecretHidesTheId(boolean secret) throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, secret ? SECRET : NO_SECRET);
        Rendezvous one = place(store.port(), 1, secret ? SECRET : NO_SECRET)) {
      UniqueId id = RankThreads.newId();
      FutureTask<UniqueId> stopped = exchange(one);
      store.awaitName("rank 1");
      // Rank 1 gets its own announcement back, so that the answer stays where it is.
      store.spoil(StoreStandIn.GET, sized(store.values().values().iterator().next()));
      inBackground(() -> zero.exchange(() -> id));
      RankThreads.failure(RendezvousException.class, stopped);
      assertEquals(!secret, inTheClear(id, store.values().values()));
    }
  }

  private static byte[] sized(byte[] value) {
    byte[] sized = new byte[Long.BYTES + value.length];
    sized[0] = (byte) value.length;
    System.arraycopy(value, 0, sized, Long.BYTES, value.length);
    return sized;
  }

  @Test
  void anotherSecretOpensNothing() throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, SECRET);
        Rendezvous one =
            place(store.port(), 1, Optional.of(Secret.of("incorrect horse battery")))) {
      inBackground(() -> zero.exchange(RankThreads::newId));
      RendezvousException refused =
          assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(refused.getMessage().contains("not sealed with the secret"), refused.getMessage());
    }
  }

  @ParameterizedTest
  @CsvSource({"0, are no sealed id", "1, which rank 1 cannot open"})
  void aSecretOfOneRankAloneIsNamed(int without, String says) throws Exception {
    try (StoreStandIn store = new StoreStandIn();
        Rendezvous zero = place(store.port(), 0, without == 0 ? NO_SECRET : SECRET);
        Rendezvous one = place(store.port(), 1, without == 1 ? NO_SECRET : SECRET)) {
      inBackground(() -> zero.exchange(RankThreads::newId));
      RendezvousException refused =
          assertThrows(RendezvousException.class, () -> one.exchange(RankThreads::newId));
      assertTrue(refused.getMessage().contains(says), refused.getMessage());
      assertTrue(refused.getMessage().contains("NCCL4J_SECRET"), refused.getMessage());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "' ', 1, host is empty; it must name the host of the store",
    "h, 0, port is 0; it must be from 1 to 65535",
    "h, 65536, port is 65536; it must be from 1 to 65535"
  })
  void badPlacesAreRefused(String host, int port, String message) {
    RankInfo rankInfo = RankInfo.of(0, 2);
    assertEquals(
        message,
        assertThrows(
                IllegalArgumentException.class,
                () -> TorchStoreRendezvous.at(host, port, NO_SECRET, rankInfo))
            .getMessage());
  }

  @Test
  void ranksOfOneTorchrunMeetInTheStoreOfItsAgent() throws Exception {
    try (StoreStandIn store = new StoreStandIn()) {
      // Each agent counts its own restarts, and not those that another asked for.
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
