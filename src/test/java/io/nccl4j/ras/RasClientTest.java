package io.nccl4j.ras;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.RasServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Asks a server that answers as NCCL does, or not. */
class RasClientTest {
  private static final Duration AMPLE = Duration.ofSeconds(30);
  private static final Duration SHORT = Duration.ofMillis(1500);

  private static final String STATUS =
      """
      {
        "nccl_version": "2.30.7",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13010,
        "timestamp": "2026-11-27 21:00:00",
        "communicators_count": 2,
        "communicators": [
          {
            "hash": "0xf1a2b3c4d5e60718",
            "secondary_hash": "0x12:0xffffffffffffffff",
            "size": 3,
            "ranks_count": 2,
            "missing_ranks_count": 1,
            "ranks": [
              {
                "rank": 0, "host": "10.0.0.1", "pid": 41, "cuda_dev": 0, "nvml_dev": 4,
                "status": {
                  "init_state": 0, "async_error": 6,
                  "finalize_called": false, "destroy_flag": false, "abort_flag": true
                },
                "collective_counts": {"Broadcast": 0, "AllReduce": 641}
              },
              {
                "rank": 1, "host": "10.0.0.1", "pid": 42, "cuda_dev": 0, "nvml_dev": 5,
                "status": {
                  "init_state": 7, "async_error": 0,
                  "finalize_called": true, "destroy_flag": true, "abort_flag": false
                },
                "collective_counts": {"Broadcast": 1, "AllReduce": 640}
              }
            ],
            "missing_ranks": [
              {
                "rank": 2, "host": "10.0.0.2", "pid": 43, "cuda_dev": 1, "nvml_dev": 1,
                "status": {"unresponsive": true, "considered_dead": false}
              }
            ]
          },
          {
            "hash": "0x0", "secondary_hash": "0x0:0x0", "size": 0, "ranks_count": 0,
            "missing_ranks_count": 0, "ranks": [], "missing_ranks": []
          }
        ],
        "ras": {"collection_time_sec": 1.250, "timeouts_count": 1}
      }
      """;

  private static RasStatus status(String json) throws IOException {
    try (RasServer server = new RasServer((command, _) -> RasServer.nccl(command, json))) {
      return RasClient.of(server.address()).status(AMPLE);
    }
  }

  /** The second communicator is one whose ranks have not met. */
  private static final RasStatus EXPECTED =
      new RasStatus(
          "2.30.7",
          "2026-11-27 21:00:00",
          List.of(
              new RasStatus.Communicator(
                  0xf1a2b3c4d5e60718L,
                  "0x12:0xffffffffffffffff",
                  3,
                  List.of(
                      new RasStatus.Rank(
                          0,
                          "10.0.0.1",
                          41,
                          0,
                          4,
                          0,
                          6,
                          false,
                          false,
                          true,
                          Map.of("Broadcast", 0L, "AllReduce", 641L)),
                      new RasStatus.Rank(
                          1,
                          "10.0.0.1",
                          42,
                          0,
                          5,
                          7,
                          0,
                          true,
                          true,
                          false,
                          Map.of("Broadcast", 1L, "AllReduce", 640L))),
                  List.of(new RasStatus.MissingRank(2, "10.0.0.2", 43, 1, 1, true, false)))),
          1.25,
          1);

  @Test
  void statusHasCommunicatorsAndRanks() throws IOException {
    RasStatus status = status(STATUS);
    assertEquals(EXPECTED, status);
    assertEquals(
        Map.of("Broadcast", 1L, "AllReduce", 641L), status.communicators().getFirst().mostCalls());
  }

  /** As in the documentation of the package. */
  @Test
  void missingRanksOfAllCommunicatorsAreListed() throws IOException {
    try (RasServer server = new RasServer((command, _) -> RasServer.nccl(command, STATUS))) {
      String address = server.address();
      RasStatus status = RasClient.of(address).status(Duration.ofSeconds(10));
      List<RasStatus.MissingRank> lost =
          status.communicators().stream()
              .flatMap(communicator -> communicator.missingRanks().stream())
              .toList();
      assertEquals(EXPECTED.communicators().getFirst().missingRanks(), lost);
    }
  }

  /** NCCL 2.28 leaves out the comma before the status of a missing rank. */
  @Test
  void statusWithoutCommaIsRead() throws IOException {
    String json = STATUS.replace("\"nvml_dev\": 1,", "\"nvml_dev\": 1");
    assertEquals(EXPECTED, status(json));
  }

  @Test
  void unknownFieldsAreIgnored() throws IOException {
    String json =
        STATUS.replace(
            "\"rank\":", "\"new\": [1.5e-3, {\"a\\u0062\\n\": [null, true]}, []], \"rank\":");
    assertEquals(EXPECTED, status(json));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "{}",
        "[]",
        "null",
        "not JSON",
        "{\"nccl_version\": 2}",
        "{\"nccl_version\"",
        "\u0000",
        "{\"nccl_version\": \"2.30.7\"} {}",
        "{\"nccl_version\": \"2.30.7\", \"ras\": []}",
        "{\"nccl_version\": \"2.30.7\", \"communicators\": [{\"size\": -x}]}",
        "{\"nccl_version\": \"2.30.7\", \"communicators\": [{\"size\": 1e400}]}",
        "{\"nccl_version\": \"2.30.7\", \"communicators\": [{\"hash\": \"0xx\"}]}",
        "{\"nccl_version\": \"2.30.7\", \"communicators\": [{\"size\": 1, \"ranks\": [{\"rank\": 1}]}]}",
        "{\"nccl_version\": \"\\ud83\"}"
      })
  void invalidAnswerIsRefused(String json) {
    RasException refused = assertThrows(RasException.class, () -> status(json));
    assertTrue(refused.getMessage().contains("a RAS answer "), refused::getMessage);
  }

  @Test
  void deepAnswerIsRefused() {
    RasException refused =
        assertThrows(RasException.class, () -> status("{\"a\": " + "[".repeat(100_000)));
    assertTrue(refused.getMessage().contains("20 levels"), refused::getMessage);
  }

  @Test
  void longValueIsRefused() {
    RasException refused =
        assertThrows(RasException.class, () -> status("{\"a\": \"" + "x".repeat(20_000) + "\"}"));
    assertTrue(refused.getMessage().contains("10000 characters"), refused::getMessage);
  }

  /** Bytes without an end, at a rate. */
  private static InputStream endless(int perPause, Duration pause) {
    return new InputStream() {
      @Override
      public int read() {
        return ' ';
      }

      @Override
      public int read(byte[] to, int offset, int length) throws IOException {
        try {
          TimeUnit.NANOSECONDS.sleep(pause.toNanos());
        } catch (InterruptedException e) {
          throw new IOException(e);
        }
        int count = Math.min(length, perPause);
        Arrays.fill(to, offset, offset + count, (byte) ' ');
        return count;
      }
    };
  }

  private static <T extends Throwable> T failing(
      Class<T> type, Duration timeout, RasServer.Answers answers) throws IOException {
    try (RasServer server = new RasServer(answers)) {
      return assertThrows(type, () -> RasClient.of(server.address()).status(timeout));
    }
  }

  private static RasServer.Answers sending(InputStream status) {
    return (command, _) -> command.equals("STATUS") ? status : RasServer.nccl(command, "");
  }

  @Test
  void hugeAnswerIsRefused() throws IOException {
    RasException refused =
        failing(RasException.class, AMPLE, sending(endless(1 << 16, Duration.ZERO)));
    assertTrue(refused.getMessage().contains("more than 64 MiB"), refused::getMessage);
  }

  @Test
  void slowAnswerTimesOut() throws IOException {
    long start = System.nanoTime();
    failing(SocketTimeoutException.class, SHORT, sending(endless(1, Duration.ofMillis(10))));
    assertTrue(System.nanoTime() - start < AMPLE.toNanos());
  }

  @Test
  void silentServerTimesOut() throws IOException {
    failing(SocketTimeoutException.class, SHORT, (_, _) -> null);
  }

  @Test
  void absentServerIsReported() throws IOException {
    RasClient client;
    try (RasServer server = new RasServer((_, _) -> null)) {
      client = RasClient.of(server.address());
    }
    assertThrows(ConnectException.class, () -> client.status(AMPLE));
  }

  @Test
  void otherServiceIsRefused() throws IOException {
    RasException refused =
        failing(
            RasException.class, AMPLE, (_, _) -> RasServer.text("HTTP/1.1 400 Bad Request\n\n"));
    assertTrue(
        refused.getMessage().endsWith(" is no RAS service: it answered 'HTTP/1.1 400 Bad Request'"),
        refused::getMessage);
  }

  @Test
  void lineWithoutEndIsRefused() throws IOException {
    RasException refused =
        failing(RasException.class, AMPLE, (_, _) -> endless(1 << 16, Duration.ZERO));
    assertTrue(refused.getMessage().contains("1000 characters"), refused::getMessage);
  }

  /** Several processes share the address, and the first one is stopped. */
  @Test
  void stoppedProcessIsNotAskedAgain() throws IOException {
    try (RasServer server =
        new RasServer(
            (command, connection) -> connection == 1 ? null : RasServer.nccl(command, STATUS))) {
      assertEquals(EXPECTED, RasClient.of(server.address()).status(AMPLE));
      assertEquals(2, server.accepted());
    }
  }

  @Test
  void statusOfOlderReleaseIsText() throws IOException {
    String text = "NCCL version 2.27.3 compiled with CUDA 12.9\n";
    List<String> commands = new ArrayList<>();
    try (RasServer server =
        new RasServer(
            (command, _) -> {
              commands.add(command);
              return RasServer.older(command, text);
            })) {
      RasClient client = RasClient.of(server.address());
      RasException refused = assertThrows(RasException.class, () -> client.status(AMPLE));
      assertTrue(refused.getMessage().contains("since 2.28.7"), refused::getMessage);
      assertEquals(List.of("CLIENT PROTOCOL 2", "SET FORMAT json"), commands);
      assertEquals(text, client.text(true, AMPLE));
      assertEquals("VERBOSE STATUS", commands.getLast());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ERROR: Invalid event group 'none', true",
    "ERROR: Unknown command MONITOR none, false"
  })
  void safeClientAsksOnlyReleasesWithEvents(String reply, boolean asked) throws IOException {
    List<String> commands = new ArrayList<>();
    try (RasServer server =
        new RasServer(
            (command, _) -> {
              commands.add(command);
              return command.startsWith("MONITOR")
                  ? RasServer.text(reply + "\n")
                  : RasServer.nccl(command, STATUS);
            })) {
      RasClient client = RasClient.of(server.address());
      if (asked) {
        assertEquals(EXPECTED, client.safe().status(AMPLE));
      } else {
        RasException refused = assertThrows(RasException.class, () -> client.safe().status(AMPLE));
        assertTrue(refused.getMessage().contains("before 2.29"), refused::getMessage);
      }
      assertEquals(asked, commands.contains("STATUS"));
      assertEquals(EXPECTED, client.status(AMPLE));
    }
  }

  @Test
  void eventsArePassedOn() throws IOException {
    String events =
        """
        {
          "timestamp": "2026-11-27 21:00:00",
          "group": "LIFECYCLE",
          "event": "PEER_DEAD",
          "peer": {"host": "10.0.0.2", "pid": 43, "cuda_devs": [0,1], "nvml_devs": [0,1]},
          "details": ""
        }
        {
          "timestamp": "2026-11-27 21:00:01", "group": "TRACE", "event": "PEER_CONNECTING",
          "peer": {"addr": "10.0.0.3<5000>"}, "details": "retry"
        }
        {
          "timestamp": "2026-11-27 21:00:02", "group": "TRACE", "event": "E", "details": "d"
        }
        """;
    List<RasEvent> seen = new ArrayList<>();
    try (RasServer server =
        new RasServer(
            (command, _) ->
                command.equals("MONITOR all")
                    ? RasServer.text("OK\n" + events)
                    : RasServer.nccl(command, ""))) {
      RasClient.of(server.address()).monitor("all", SHORT, seen::add);
    }
    assertEquals(
        List.of(
            new RasEvent("2026-11-27 21:00:00", "LIFECYCLE", "PEER_DEAD", "10.0.0.2", 43, ""),
            new RasEvent(
                "2026-11-27 21:00:01", "TRACE", "PEER_CONNECTING", "10.0.0.3<5000>", -1, "retry"),
            new RasEvent("2026-11-27 21:00:02", "TRACE", "E", "", -1, "d")),
        seen);
  }

  @Test
  void releaseWithoutEventsIsRefused() throws IOException {
    try (RasServer server =
        new RasServer(
            (command, _) ->
                command.startsWith("MONITOR")
                    ? RasServer.text("ERROR: Unknown command MONITOR lifecycle\n")
                    : RasServer.nccl(command, ""))) {
      RasException refused =
          assertThrows(
              RasException.class,
              () -> RasClient.of(server.address()).monitor("lifecycle", AMPLE, _ -> {}));
      assertTrue(refused.getMessage().contains("since 2.29"), refused::getMessage);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:1"})
  void addressWithoutHostAndPortIsRefused(String address) {
    assertThrows(IllegalArgumentException.class, () -> RasClient.of(address));
  }

  @ParameterizedTest
  @ValueSource(strings = {"localhost:28028", "10.0.0.1:1", "[::1]:65535"})
  void addressIsShown(String address) {
    assertEquals(address, RasClient.of(address).toString());
  }

  @Test
  void argumentsAreChecked() {
    RasClient client = RasClient.of("localhost:1");
    assertThrows(IllegalArgumentException.class, () -> client.status(Duration.ZERO));
    assertThrows(IllegalArgumentException.class, () -> client.text(false, Duration.ZERO));
    assertThrows(
        IllegalArgumentException.class, () -> client.monitor("all\nSTATUS", AMPLE, _ -> {}));
    assertThrows(
        IllegalArgumentException.class, () -> client.monitor("all", Duration.ZERO, _ -> {}));
  }
}
