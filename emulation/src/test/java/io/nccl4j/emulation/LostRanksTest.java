package io.nccl4j.emulation;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.lang.ProcessBuilder.Redirect;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Loses ranks of NVIDIA's NCCL on the emulated CUDA, one process per rank: the survivors notice it,
 * leave the communicator, and continue without the lost rank.
 */
@Timeout(600)
class LostRanksTest {
  private static final int RANKS = 3;

  /** The rank that is lost. */
  private static final int LOST = 2;

  /** Longer than any step takes. */
  private static final int MINUTE = 60;

  /** For steps that cannot succeed; long enough that NCCL arrives where it waits for its peers. */
  private static final int SOON = 3;

  /** Longer than RAS needs to notice that a process is silent. */
  private static final int KEEP_ALIVE = 10;

  private final List<Rank> ranks = new ArrayList<>();

  @AfterEach
  void end() throws InterruptedException {
    ranks.forEach(rank -> rank.process.destroyForcibly());
    for (Rank rank : ranks) {
      assertTrue(rank.process.waitFor(MINUTE, TimeUnit.SECONDS));
    }
  }

  /**
   * NCCL frees nothing of a communicator whose ranks have never met, and a blocking one keeps a
   * thread. Later communicators leave no more than that.
   */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void creationWithoutARankEnds(boolean blocking) throws Exception {
    start(RANKS - 1, false);
    useAndClose(ranks);
    for (String reply : tryToCreate(ranks, RANKS, SOON, blocking)) {
      assertStartsWith(
          "failed io.nccl4j.NcclTimeoutException: ncclCommInitRankConfig: not finished after "
              + SOON
              + ".0 s",
          reply);
    }
    useAndClose(ranks);
    List<Map<String, Integer>> before = left(ranks);
    useAndClose(ranks);
    assertNothingMoreLeft(ranks, before);
  }

  /**
   * NCCL does not notice the loss of a process on the same host, nor of one that is stopped. A
   * stopped rank that continues when the others have gone ends by its own timeout, or has the sum
   * if connections still hold all that it needs.
   */
  @ParameterizedTest
  @CsvSource({"KILL, false", "STOP, false", "STOP, true"})
  void survivorsTimeOutAndShrink(String signal, boolean hosts) throws Exception {
    start(RANKS, hosts);
    useAndClose(ranks);
    List<Map<String, Integer>> before = left(ranks);
    loseInAllReduce(signal);
    List<Rank> survivors = ranks.subList(0, LOST);
    for (String reply : replies(survivors, "await " + SOON)) {
      assertStartsWith("failed io.nccl4j.NcclTimeoutException: cudaStreamQuery", reply);
    }
    succeed(survivors, "shrink " + LOST);
    allReduce(survivors);
    if (signal.equals("STOP")) {
      ranks.get(LOST).signal("CONT");
      String reply = replies(ranks.subList(LOST, RANKS), "await " + SOON).getFirst();
      // NCCL may notice that the others have closed their connections.
      assertTrue(
          reply.matches("ok 3|failed io.nccl4j.Nccl(Timeout|Remote)Exception: .*"), () -> reply);
      succeed(ranks.subList(LOST, RANKS), "abort");
      assertNothingMoreLeft(ranks.subList(LOST, RANKS), before.subList(LOST, RANKS));
    }
    succeed(survivors, "close");
    assertNothingMoreLeft(survivors, before);
  }

  /**
   * The rank that receives from the lost one over a network gets an error from NCCL, which then
   * refuses to shrink. All survivors abort and create a new communicator.
   */
  @Test
  void lossOfAnotherHostIsReported() throws Exception {
    start(RANKS, true);
    useAndClose(ranks);
    List<Map<String, Integer>> before = left(ranks);
    loseInAllReduce("KILL");
    List<Rank> receiver = ranks.subList(0, 1);
    assertStartsWith(
        "ok io.nccl4j.NcclRemoteException: ncclCommGetAsyncError",
        replies(receiver, "error").getFirst());
    assertStartsWith(
        "failed io.nccl4j.NcclRemoteException: ", replies(receiver, "await " + MINUTE).getFirst());
    assertStartsWith(
        "failed io.nccl4j.NcclRemoteException: ncclCommShrink",
        replies(receiver, "shrink " + LOST).getFirst());
    List<Rank> survivors = ranks.subList(0, LOST);
    succeed(survivors, "abort");
    useAndClose(survivors);
    assertNothingMoreLeft(survivors, before);
  }

  /** The child is like its parent to RAS, except for its hash. */
  @Test
  void rankBehindIsNamedByRas() throws Exception {
    start(RANKS, false);
    create(ranks);
    succeed(ranks, "split");
    allReduce(ranks);
    List<Rank> others = ranks.subList(0, LOST);
    succeed(others, "enqueue");
    for (String reply : replies(others, "await " + SOON)) {
      assertMatches(
          ".*; all-reduce 2: rank 2 has called 1 \\(host [0-9a-f:.]+, process "
              + ranks.get(LOST).process.pid()
              + "\\) .*; missing \\[2], failed \\[]",
          reply);
    }
    succeed(ranks.subList(LOST, RANKS), "enqueue");
    for (String reply : replies(ranks, "await " + MINUTE)) {
      assertEquals("ok " + RANKS, reply);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"KILL", "STOP"})
  void rankThatRasReportsIsExcluded(String signal) throws Exception {
    start(RANKS, false);
    create(ranks);
    allReduce(ranks);
    ranks.get(LOST).signal(signal);
    List<Rank> survivors = ranks.subList(0, LOST);
    succeed(survivors, "enqueue");
    for (String reply : replies(survivors, "await " + KEEP_ALIVE)) {
      assertMatches(
          ".*; rank 2 does not answer \\(host [0-9a-f:.]+, process "
              + ranks.get(LOST).process.pid()
              + "\\) .*; missing \\[], failed \\[2]",
          reply);
    }
    succeed(survivors, "recover");
    allReduce(survivors);
  }

  private static void assertMatches(String pattern, String reply) {
    assertTrue(reply.matches(pattern), () -> "expected '" + pattern + "' in: " + reply);
  }

  private void start(int count, boolean hosts) throws IOException {
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    for (int rank = 0; rank < count; rank++) {
      Map<String, String> environment = new HashMap<>();
      environment.put("NCCL_RAS_ADDR", "localhost:" + port);
      if (hosts) {
        environment.put("NCCL_HOSTID", rank == LOST ? "another" : "one");
        environment.put("NCCL_NET", "Socket");
        environment.put("NCCL_SOCKET_IFNAME", "lo");
      }
      ranks.add(new Rank(rank, environment));
    }
  }

  /** Loses a rank whose all-reduce is enqueued and cannot end, since rank 0 enqueues it later. */
  private void loseInAllReduce(String signal) throws Exception {
    create(ranks);
    allReduce(ranks);
    succeed(ranks.subList(1, RANKS), "enqueue");
    ranks.get(LOST).signal(signal);
    succeed(ranks.subList(0, 1), "enqueue");
  }

  private static void useAndClose(List<Rank> ranks) throws Exception {
    create(ranks);
    allReduce(ranks);
    succeed(ranks, "close");
  }

  private static void create(List<Rank> ranks) throws Exception {
    for (String reply : tryToCreate(ranks, ranks.size(), MINUTE, true)) {
      assertEquals("ok ", reply);
    }
  }

  private static List<String> tryToCreate(List<Rank> ranks, int size, int seconds, boolean blocking)
      throws Exception {
    String id = replies(ranks.subList(0, 1), "id").getFirst().substring("ok ".length());
    return replies(ranks, "create %s %d %d %b".formatted(id, size, seconds, blocking));
  }

  private static void allReduce(List<Rank> ranks) throws Exception {
    succeed(ranks, "enqueue");
    for (String reply : replies(ranks, "await " + MINUTE)) {
      assertEquals("ok " + ranks.size(), reply);
    }
  }

  private static void succeed(List<Rank> ranks, String command) throws Exception {
    for (String reply : replies(ranks, command)) {
      assertEquals("ok ", reply, command);
    }
  }

  /** Gives a command to ranks, which execute it at the same time. */
  private static List<String> replies(List<Rank> ranks, String command) throws Exception {
    ranks.forEach(rank -> rank.commands.println(command));
    List<String> replies = new ArrayList<>();
    for (Rank rank : ranks) {
      // A command waits for a minute at most, some of them twice.
      String reply = rank.replies.poll(3 * MINUTE, TimeUnit.SECONDS);
      assertNotNull(reply, () -> rank + " did not reply to: " + command);
      replies.add(reply);
    }
    return replies;
  }

  private static void assertStartsWith(String expected, String reply) {
    assertTrue(reply.startsWith(expected), () -> "expected '" + expected + "' in: " + reply);
  }

  private static List<Map<String, Integer>> left(List<Rank> ranks) throws Exception {
    List<Map<String, Integer>> left = new ArrayList<>();
    for (String reply : replies(ranks, "left")) {
      String[] words = reply.split(" ", -1);
      Map<String, Integer> numbers = new HashMap<>();
      for (int i = 1; i < words.length; i += 2) {
        numbers.put(words[i], Integer.valueOf(words[i + 1]));
      }
      left.add(numbers);
    }
    return left;
  }

  /** Waits until ranks have no more of anything than before. */
  private static void assertNothingMoreLeft(List<Rank> ranks, List<Map<String, Integer>> before)
      throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MINUTE);
    while (true) {
      List<Map<String, Integer>> now = left(ranks);
      boolean more = false;
      for (int i = 0; i < now.size(); i++) {
        Map<String, Integer> earlier = before.get(i);
        more |=
            now.get(i).entrySet().stream().anyMatch(e -> e.getValue() > earlier.get(e.getKey()));
      }
      if (!more) {
        return;
      }
      assertTrue(System.nanoTime() < end, () -> "before: " + before + ", now: " + now);
      TimeUnit.MILLISECONDS.sleep(20);
    }
  }

  /** A {@link CommandedRank}. */
  private static final class Rank {
    final Process process;
    final PrintWriter commands;
    final BlockingQueue<String> replies = new LinkedBlockingQueue<>();
    private final int number;

    Rank(int number, Map<String, String> environment) throws IOException {
      this.number = number;
      List<String> command =
          FinishedProgram.java(
              "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
              "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
              // The number of threads must not depend on what the JVM compiles and collects.
              "-XX:TieredStopAtLevel=1",
              "-XX:-UseDynamicNumberOfCompilerThreads",
              "-XX:+UseSerialGC",
              CommandedRank.class.getName(),
              "" + number);
      ProcessBuilder builder = new ProcessBuilder(command).redirectError(Redirect.INHERIT);
      builder.environment().putAll(environment);
      process = builder.start();
      commands = new PrintWriter(process.getOutputStream(), true, StandardCharsets.UTF_8);
      Thread.ofPlatform().daemon().name("replies-of-rank-" + number).start(this::read);
    }

    private void read() {
      try (BufferedReader reader = process.inputReader()) {
        reader.lines().forEach(replies::add);
        replies.add("the process has ended");
      } catch (IOException | UncheckedIOException broken) {
        replies.add("the output cannot be read: " + broken);
      }
    }

    void signal(String name) throws IOException, InterruptedException {
      Process kill = new ProcessBuilder("kill", "-" + name, "" + process.pid()).start();
      assertEquals(0, kill.waitFor());
      if (name.equals("KILL")) {
        assertTrue(process.waitFor(MINUTE, TimeUnit.SECONDS));
      } else if (name.equals("STOP")) {
        awaitStopped();
      }
    }

    /** Waits until no thread runs: each stops when it is scheduled next. */
    private void awaitStopped() throws IOException, InterruptedException {
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MINUTE);
      while (!stopped()) {
        assertTrue(System.nanoTime() < end, this + " did not stop");
        TimeUnit.MILLISECONDS.sleep(20);
      }
    }

    private boolean stopped() throws IOException {
      try (DirectoryStream<Path> threads =
          Files.newDirectoryStream(Path.of("/proc", "" + process.pid(), "task"))) {
        for (Path thread : threads) {
          if (!Files.readString(thread.resolve("status")).contains("\nState:\tT")) {
            return false;
          }
        }
      } catch (NoSuchFileException ended) {
        // A thread that ends now has still run.
        return false;
      }
      return true;
    }

    @Override
    public String toString() {
      return "rank " + number;
    }
  }
}
