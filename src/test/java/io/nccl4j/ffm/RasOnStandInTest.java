package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.RasServer;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.ras.RasClient;
import io.nccl4j.ras.RasStatus;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a wait that times out knows from the stand-in's RAS service. */
@OnStandIn
class RasOnStandInTest {
  private static final int COUNT = 100;
  private static final Duration TIMEOUT = Duration.ofSeconds(1);

  /** The stand-in listens there until the process ends. */
  private static final int PORT = freePort();

  private static final String ANOTHER_JOB =
      """
      {"nccl_version": "2.30.7", "communicators": [{"hash": "0x1", "size": 2, "ranks": [
        {"rank": 0, "host": "127.0.0.1", "pid": 1, "collective_counts": {"AllReduce": 9}},
        {"rank": 1, "host": "127.0.0.1", "pid": 1, "collective_counts": {"AllReduce": 0}}]}]}
      """;

  private final Pair pair;
  private final List<Buffer> data;

  RasOnStandInTest() {
    StandIn.reset();
    StandIn.connect(false); // An operation of one rank blocks in its stream, not in its call.
    StandIn.setEnvironment("NCCL_RAS_ADDR", "localhost:" + PORT);
    StandIn.setEnvironment("NCCL4J_STANDIN_RAS", "1");
    pair = new Pair(CommunicatorConfig.defaults());
    data =
        List.of(
            pair.rank(0).newBuffer(DataType.INT32, COUNT),
            pair.rank(1).newBuffer(DataType.INT32, COUNT));
    Group.run(
        () -> {
          allReduce(0);
          allReduce(1);
        });
    pair.stream(0).synchronize();
    pair.stream(1).synchronize();
  }

  private static int freePort() {
    try (ServerSocket free = new ServerSocket(0)) {
      return free.getLocalPort();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @AfterEach
  void close() {
    StandIn.setEnvironment("NCCL_RAS_ADDR", null);
    StandIn.setEnvironment("NCCL4J_STANDIN_RAS", null);
    StandIn.setEnvironment("NCCL_RAS_ENABLE", null);
    pair.abort();
    pair.close();
  }

  private void allReduce(int rank) {
    pair.rank(rank).allReduce(data.get(rank), data.get(rank), ReduceOp.SUM, pair.stream(rank));
  }

  private NcclException timeout() {
    return assertThrows(NcclTimeoutException.class, () -> pair.stream(0).synchronize(TIMEOUT));
  }

  private static void assertContains(String part, NcclException thrown) {
    assertTrue(thrown.getMessage().contains(part), thrown::getMessage);
  }

  private static String process() {
    return " (host 127.0.0.1, process " + ProcessHandle.current().pid() + ")";
  }

  @Test
  void rankBehindIsMissing() {
    allReduce(0);
    NcclException thrown = timeout();
    assertContains("; all-reduce 2: rank 1 has called 1" + process(), thrown);
    assertEquals(Set.of(1), thrown.missingRanks());
    assertEquals(Set.of(), thrown.failedRanks());
  }

  @Test
  void silentRankHasFailed() {
    pair.nccl(0).callNative("rank_fails", comm -> failing(comm, 1));
    allReduce(0);
    NcclException thrown = timeout();
    assertContains("; rank 1 does not answer" + process(), thrown);
    assertEquals(Set.of(), thrown.missingRanks());
    assertEquals(Set.of(1), thrown.failedRanks());
  }

  private static int failing(MemorySegment comm, int rank) {
    StandIn.failRank(comm, rank, 0);
    return 0;
  }

  @Test
  void rankThatAbortedHasFailed() {
    allReduce(0);
    pair.rank(1).abort();
    NcclException thrown = timeout();
    assertContains("; rank 1 has left the communicator", thrown);
    assertEquals(Set.of(1), thrown.failedRanks());
  }

  @Test
  void messagesAreNotCounted() {
    pair.rank(0).recv(data.get(0), 1, pair.stream(0));
    NcclException thrown = timeout();
    assertContains("; NCCL counts neither sends and receives nor captured operations, so", thrown);
    assertEquals(Set.of(), thrown.missingRanks());
  }

  /** Rank 1 has not called the message, nor the collective behind it, for which nothing waits. */
  @Test
  void collectivesBehindAMessageNameNobody() {
    pair.rank(0).recv(data.get(0), 1, pair.stream(0));
    allReduce(0);
    NcclException thrown = timeout();
    assertContains("; NCCL counts neither sends and receives nor captured operations, so", thrown);
    assertEquals(Set.of(), thrown.missingRanks());
  }

  /** NCCL does not count captured operations, and what is called after them is not late. */
  @Test
  void capturedOperationsAreNotCounted() {
    Graph graph = Graph.capture(pair.stream(0), () -> allReduce(0));
    graph.launch(pair.stream(0));
    allReduce(0);
    NcclException thrown = timeout();
    assertContains("; NCCL counts neither sends and receives nor captured operations, so", thrown);
    assertEquals(Set.of(), thrown.missingRanks());
  }

  /** The oldest operation that has not completed counts, not those that this rank called since. */
  @Test
  void oldestPendingOperationIsCompared() {
    allReduce(0);
    pair.rank(0).broadcast(data.get(0), 1, pair.stream(0));
    allReduce(0);
    allReduce(0);
    assertContains("; all-reduce 2: rank 1 has called 1" + process(), timeout());
    Group.run(() -> allReduce(1));
    NcclException thrown = timeout();
    assertContains("; broadcast 1: rank 1 has called none" + process(), thrown);
    assertFalse(thrown.getMessage().contains("all-reduce"), thrown::getMessage);
  }

  /** The children and the parent are alike but for their hashes. */
  @Test
  void childIsFoundByItsHash() {
    List<Communicator> children = new ArrayList<>();
    Group.run(
        () -> {
          children.add(pair.rank(0).split(0, 0));
          children.add(pair.rank(1).split(0, 1));
        });
    try (Stream first = children.get(0).newStream();
        Stream second = children.get(1).newStream()) {
      Group.run(
          () -> {
            children.get(0).allReduce(data.get(0), data.get(0), ReduceOp.SUM, first);
            children.get(1).allReduce(data.get(1), data.get(1), ReduceOp.SUM, second);
          });
      first.synchronize();
      children.get(0).broadcast(data.get(0), 0, first);
      NcclException thrown =
          assertThrows(NcclTimeoutException.class, () -> first.synchronize(TIMEOUT));
      assertContains("; broadcast 1: rank 1 has called none" + process(), thrown);
      Communicator.abortAll(children);
    }
  }

  /** Returns a service whose first answer differs from the stand-in's. */
  private static RasServer answeringAtFirst(UnaryOperator<String> change) throws IOException {
    return new RasServer(
        (command, connection) ->
            RasServer.nccl(
                command, connection == 1 ? change.apply(standInStatus()) : standInStatus()));
  }

  /** Processes of several jobs share an address; the first one that answers is of another job. */
  @Test
  void anotherJobIsSkipped() throws IOException {
    try (RasServer shared = answeringAtFirst(_ -> ANOTHER_JOB)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", shared.address());
      allReduce(0);
      assertEquals(Set.of(1), timeout().missingRanks());
      assertEquals(2, shared.accepted());
    }
  }

  /** The counts of an answer and this rank's own are not of the same time. */
  @Test
  void callsWhileAskingDoNotCount() throws IOException {
    UnaryOperator<String> calling =
        _ -> {
          allReduce(0);
          return standInStatus();
        };
    try (RasServer service = answeringAtFirst(calling)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", service.address());
      allReduce(0);
      assertContains("; all-reduce 2: rank 1 has called 1" + process(), timeout());
      assertEquals(1, service.accepted());
    }
  }

  /** An answer that names nobody may be older than this rank's last calls. */
  @Test
  void callsWhileAskingLetItAskAgain() throws IOException {
    UnaryOperator<String> calling =
        status -> {
          allReduce(0);
          return status.replace("\"AllReduce\": 1", "\"AllReduce\": 2");
        };
    try (RasServer service = answeringAtFirst(calling)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", service.address());
      allReduce(0);
      assertEquals(Set.of(1), timeout().missingRanks());
      assertEquals(2, service.accepted());
    }
  }

  /** Listeners of other jobs: an old release, one that ends, another service, and then NCCL. */
  @Test
  void otherListenersAreSkipped() throws IOException {
    List<String> asked = new CopyOnWriteArrayList<>();
    try (RasServer shared =
        new RasServer(
            (command, connection) -> {
              asked.add(connection + " " + command);
              return switch (connection) {
                case 1 -> RasServer.older(command, "NCCL version 2.27.7");
                case 2 ->
                    command.startsWith("MONITOR")
                        ? RasServer.text("ERROR: Unknown command MONITOR none\n")
                        : RasServer.nccl(command, ANOTHER_JOB);
                case 3 -> RasServer.nccl(command, "{\"nccl_version\"");
                case 4 -> RasServer.text("HTTP/1.1 400 Bad Request\n\n");
                default -> RasServer.nccl(command, standInStatus());
              };
            })) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", shared.address());
      allReduce(0);
      assertEquals(Set.of(1), timeout().missingRanks());
    }
    // Asking the status of these could end them.
    assertFalse(asked.contains("1 STATUS"), asked::toString);
    assertFalse(asked.contains("2 STATUS"), asked::toString);
    assertTrue(asked.contains("3 STATUS"), asked::toString);
  }

  /** NCCL goes around a silent process only after a while. */
  @Test
  void incompleteAnswerIsAskedForAgain() throws IOException {
    try (RasServer slow =
        answeringAtFirst(
            status -> status.replace("\"timeouts_count\": 0", "\"timeouts_count\": 1"))) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", slow.address());
      allReduce(0);
      assertEquals(Set.of(1), timeout().missingRanks());
      assertEquals(2, slow.accepted());
    }
  }

  /** A process that is creating a communicator leaves out the ranks that are missing. */
  @Test
  void answerWithoutTheMissingRanksIsAskedForAgain() throws IOException {
    try (RasServer busy =
        answeringAtFirst(
            status -> status.replaceAll("\"missing_ranks\": \\[[^]]*]", "\"missing_ranks\": []"))) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", busy.address());
      allReduce(0);
      pair.rank(1).abort();
      assertEquals(Set.of(1), timeout().failedRanks());
      assertEquals(2, busy.accepted());
    }
  }

  /** The first operations connect inside their calls, for which no stream waits. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void callThatDoesNotReturnNamesRanks(boolean blocking) {
    StandIn.connect(true);
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withBlocking(blocking).withTimeout(TIMEOUT);
    try (Pair connecting = new Pair(config);
        Buffer value = connecting.rank(0).newBuffer(DataType.INT32, COUNT)) {
      connecting.rank(1).abort();
      NcclException thrown =
          assertThrows(
              NcclTimeoutException.class,
              () -> connecting.rank(0).allReduce(value, value, ReduceOp.SUM, connecting.stream(0)));
      assertContains("; rank 1 has left the communicator", thrown);
      assertEquals(Set.of(1), thrown.failedRanks());
      assertEquals(1, thrown.sequenceNumber().orElseThrow());
      assertEquals(Operation.ALL_REDUCE, thrown.operation().orElseThrow());
      connecting.abort();
    }
  }

  /**
   * They seem to be lost when the others time out, which have asked before, also if that is slow.
   */
  @ParameterizedTest
  @ValueSource(longs = {0, 4_000})
  void ranksThatTimeOutALittleEarlierAreNotLost(long answerMillis) throws Exception {
    RasServer.Answers slow =
        (command, connection) -> {
          String status = standInStatus();
          // The warning comes at the same time as the question.
          if (command.endsWith("STATUS") && connection <= 2) {
            sleep(answerMillis);
          }
          return RasServer.nccl(command, status);
        };
    StandIn.connect(true);
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(6));
    try (RasServer service = new RasServer(slow);
        Pair connecting = new Pair(config);
        Buffer value = connecting.rank(0).newBuffer(DataType.INT32, COUNT)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", service.address());
      Thread earlier =
          Thread.ofPlatform()
              .start(
                  () -> {
                    sleep(4_500);
                    connecting.rank(1).abort();
                  });
      NcclException thrown =
          assertThrows(
              NcclTimeoutException.class,
              () -> connecting.rank(0).allReduce(value, value, ReduceOp.SUM, connecting.stream(0)));
      assertTrue(connecting.rank(1).isAborted());
      assertEquals(Set.of(), thrown.failedRanks(), thrown::getMessage);
      earlier.join();
      connecting.abort();
    }
  }

  @Test
  void remoteErrorNamesTheLostRank() {
    allReduce(0);
    pair.rank(1).abort();
    assertThrows(
        NcclRemoteException.class,
        () -> pair.nccl(0).callNative("failRank", RasOnStandInTest::reportRemoteError));
    for (int i = 0; i < 2; i++) {
      NcclException thrown =
          assertThrows(NcclRemoteException.class, () -> pair.stream(0).synchronize(TIMEOUT));
      assertContains("; rank 1 has left the communicator", thrown);
      assertEquals(Set.of(1), thrown.failedRanks());
      assertEquals("ncclCommGetAsyncError", thrown.function());
    }
  }

  /** One that is interrupted while it waits for the answer leaves it to the next. */
  @Test
  void interruptedThreadDoesNotLoseTheAnswer() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    CountDownLatch answer = new CountDownLatch(1);
    UnaryOperator<String> slow =
        status -> {
          asked.countDown();
          awaitLatch(answer);
          return status;
        };
    try (RasServer service = answeringAtFirst(slow)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", service.address());
      allReduce(0);
      pair.rank(1).abort();
      assertThrows(
          NcclRemoteException.class,
          () -> pair.nccl(0).callNative("failRank", RasOnStandInTest::reportRemoteError));
      FutureTask<NcclException> first =
          new FutureTask<>(
              () ->
                  assertThrows(
                      NcclRemoteException.class, () -> pair.stream(0).synchronize(TIMEOUT)));
      Thread waiting = Thread.ofPlatform().start(first);
      awaitLatch(asked);
      waiting.interrupt();
      assertEquals(Set.of(), first.get(30, TimeUnit.SECONDS).failedRanks());
      answer.countDown();
      NcclException thrown =
          assertThrows(NcclRemoteException.class, () -> pair.stream(0).synchronize(TIMEOUT));
      assertEquals(Set.of(1), thrown.failedRanks());
    }
  }

  private static void awaitLatch(CountDownLatch latch) {
    try {
      assertTrue(latch.await(30, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static int reportRemoteError(MemorySegment comm) {
    StandIn.failRank(comm, 0, NcclResult.REMOTE_ERROR.code());
    return 0;
  }

  private static void sleep(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static String standInStatus() {
    try (Socket socket = new Socket(InetAddress.ofLiteral("127.0.0.1"), PORT)) {
      socket
          .getOutputStream()
          .write("SET FORMAT json\nSTATUS\n".getBytes(StandardCharsets.US_ASCII));
      String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
      return answer.substring("OK\n".length());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Test
  void onlyAnotherJobNamesNobody() throws IOException {
    // Its second listener is busy.
    try (RasServer other =
        new RasServer(
            (command, connection) ->
                connection == 1 ? RasServer.nccl(command, ANOTHER_JOB) : null)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", other.address());
      allReduce(0);
      NcclException thrown = timeout();
      assertContains(
          "; NCCL's RAS service at " + other.address() + " answered for other jobs only", thrown);
      assertEquals(Set.of(), thrown.missingRanks());
    }
  }

  @Test
  void silentServiceIsNotAwaited() throws IOException {
    try (RasServer silent = new RasServer((_, _) -> null)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", silent.address());
      allReduce(0);
      long start = System.nanoTime();
      NcclException thrown = timeout();
      long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start);
      assertTrue(5 <= seconds && seconds < 15, "after " + seconds + " s");
      assertContains("; NCCL does not report the ranks: " + silent.address() + " did not", thrown);
      assertEquals(Set.of(), thrown.missingRanks());
    }
  }

  @Test
  void absentServiceIsReported() {
    String address = "localhost:" + freePort();
    StandIn.setEnvironment("NCCL_RAS_ADDR", address);
    allReduce(0);
    assertContains(
        "; NCCL does not report the ranks: no RAS service at " + address + ": ", timeout());
  }

  @Test
  void disabledServiceIsNotAsked() {
    StandIn.setEnvironment("NCCL_RAS_ENABLE", "0");
    allReduce(0);
    NcclException thrown = timeout();
    assertContains("; NCCL_RAS_ENABLE=0, so NCCL does not report the ranks", thrown);
    assertEquals(Set.of(), thrown.missingRanks());
  }

  @Test
  void statusHasTheCommunicator() throws IOException {
    RasStatus status = RasClient.of("localhost:" + PORT).status(Duration.ofSeconds(30));
    assertEquals("2.30.7", status.ncclVersion());
    List<RasStatus.Communicator> open =
        status.communicators().stream().filter(c -> c.missingRanks().isEmpty()).toList();
    assertEquals(List.of(2), open.stream().map(RasStatus.Communicator::size).toList());
    assertEquals(1, open.getFirst().mostCalls().get("AllReduce"));
  }
}
