package io.nccl4j.tools.ras;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.RasServer;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Runs the command against a server that answers as NCCL does. */
class RasTest {
  private static final String STATUS =
      """
      {"nccl_version": "2.30.7", "timestamp": "2026-11-27 21:00:00", "communicators": [
        {"hash": "0xabc", "size": 6, "ranks": [
          {"rank": 0, "host": "10.0.0.1", "pid": 41, "cuda_dev": 0, "collective_counts": {"AllReduce": 641, "Reduce": 0}},
          {"rank": 1, "host": "10.0.0.1", "pid": 42, "cuda_dev": 1, "collective_counts": {"AllReduce": 640, "Reduce": 0}},
          {"rank": 4, "host": "10.0.0.1", "pid": 45, "cuda_dev": 4,
           "status": {"init_state": 0, "async_error": 6, "abort_flag": true},
           "collective_counts": {"AllReduce": 641, "Reduce": 0}}],
         "missing_ranks": [
          {"rank": 2, "host": "10.0.0.22", "pid": 43, "cuda_dev": 2, "status": {"unresponsive": true, "considered_dead": false}},
          {"rank": 3, "host": "10.0.0.22", "pid": 44, "cuda_dev": 3, "status": {"unresponsive": true, "considered_dead": true}},
          {"rank": 5, "host": "unknown", "pid": -1, "cuda_dev": 5, "status": {"unresponsive": false, "considered_dead": false}}]},
        {"hash": "0xdef", "size": 1, "ranks": [
          {"rank": 0, "host": "10.0.0.1", "pid": 41, "cuda_dev": 0, "collective_counts": {"AllReduce": 0}}]},
        {"hash": "0x1", "size": 3, "ranks": [{"rank": 2, "host": "10.0.0.1", "pid": 41}]}],
       "ras": {"collection_time_sec": 2.5, "timeouts_count": 1}}
      """;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return Ras.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        args);
  }

  private String out() {
    return out.toString(StandardCharsets.UTF_8);
  }

  private String err() {
    return err.toString(StandardCharsets.UTF_8);
  }

  private static RasServer server() throws IOException {
    return new RasServer((command, _) -> RasServer.nccl(command, STATUS));
  }

  @Test
  void tableShowsTheRanksThatNeedAttention() throws IOException {
    try (RasServer server = server()) {
      assertEquals(Commands.OK, run("--address", server.address()), this::err);
    }
    assertEquals(
        """
        NCCL 2.30.7, 2026-11-27 21:00:00, 3 communicators, collected in 2.500 s
        1 time-out of processes that did not answer: data is missing

        communicator 0xabc: 6 ranks, AllReduce 641
           rank  host        process  GPU
              1  10.0.0.1         42    1  AllReduce 640 of 641
              2  10.0.0.22        43    2  does not answer
              3  10.0.0.22        44    3  considered dead
              4  10.0.0.1         45    4  reports REMOTE_ERROR; is being aborted
              5  unknown          -1    5  not known to the service

        communicator 0xdef: 1 rank, no collective called
          all ranks answer and have called the same collectives

        communicator 0x1: 3 ranks, no collective called
          2 ranks not known to the service

        """,
        out().replaceAll(" +\n", "\n"));
  }

  @Test
  void jsonHasTheCountsBehind() throws IOException {
    try (RasServer server = server()) {
      assertEquals(Commands.OK, run("--json", "--address", server.address()), this::err);
    }
    assertEquals(1, out().lines().count());
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(out());
    Map<?, ?> communicator = (Map<?, ?>) ((List<?>) json.get("communicators")).getFirst();
    assertEquals("0xabc", communicator.get("hash"));
    assertEquals(Map.of("AllReduce", 641L, "Reduce", 0L), communicator.get("calls"));
    Map<?, ?> late = (Map<?, ?>) ((List<?>) communicator.get("ranks")).get(1);
    assertEquals(42L, late.get("pid"));
    assertEquals(Map.of("AllReduce", 1L), late.get("behind"));
    Map<?, ?> dead = (Map<?, ?>) ((List<?>) communicator.get("missing_ranks")).get(1);
    assertEquals(true, dead.get("considered_dead"));
  }

  @Test
  void watchEndsWithTheService() throws IOException {
    RasServer[] server = new RasServer[1];
    server[0] =
        new RasServer(
            (command, connection) -> {
              if (connection == 2) {
                closed(server[0]);
              }
              return RasServer.nccl(command, STATUS);
            });
    assertEquals(Commands.FAILED, run("--watch", "1", "--address", server[0].address()));
    assertTrue(out().startsWith("NCCL 2.30.7, "), this::out);
    assertTrue(err().startsWith("ras: "), this::err);
  }

  private static void closed(RasServer server) {
    try {
      server.close();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void olderReleaseIsShownAsText() throws IOException {
    String text = "NCCL version 2.27.3 compiled with CUDA 12.9\n...\n";
    try (RasServer server = new RasServer((command, _) -> RasServer.older(command, text))) {
      assertEquals(Commands.FAILED, run("--address", server.address()));
      assertTrue(err().contains("which NCCL has since 2.28.7"), this::err);
      assertEquals(Commands.OK, run("--text", "--address", server.address()), this::err);
    }
    assertEquals(text, out());
  }

  @Test
  void absentServiceIsReported() throws IOException {
    String address;
    try (RasServer server = server()) {
      address = server.address();
    }
    assertEquals(Commands.FAILED, run("--address", address));
    assertEquals("ras: no RAS service at " + address + ": Connection refused\n", err());
  }

  @ParameterizedTest
  @ValueSource(strings = {"--address=host", "--watch=0", "--timeout=0", "--json --text"})
  void badArgumentsAreRefused(String arguments) {
    assertEquals(Commands.BAD_ARGUMENTS, run(arguments.split(" ")));
  }
}
