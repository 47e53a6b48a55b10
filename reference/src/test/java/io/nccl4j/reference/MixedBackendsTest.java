package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclConfig;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests that ranks of one job on different backends fail; NCCL is the stand-in. */
@OnStandIn
class MixedBackendsTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(25);
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(5)).withDevice(0);

  @TempDir private Path folder;

  private static void assertRefused(String expected, Executable call) {
    IllegalArgumentException refused = assertThrows(IllegalArgumentException.class, call);
    assertTrue(refused.getMessage().contains(expected), refused.getMessage());
  }

  @Test
  void ncclRefusesIdsOfTheReference() {
    try (Backend reference = Backend.reference(1);
        Backend nccl = NcclBackend.open()) {
      long before = StandIn.live("communicator");
      UniqueId id = reference.newUniqueId();
      NcclConfig config = NcclConfig.of(CONFIG);
      List<UniqueId> ids = List.of(nccl.newUniqueId(), id);
      String expected =
          id
              + " was made by the reference backend in process "
              + ProcessHandle.current().pid()
              + " on ";
      assertRefused(expected, () -> nccl.newCommunicator(id, 2, 1, CONFIG));
      assertRefused("but this rank uses NCCL", () -> nccl.newCommunicator(id, 2, 1, CONFIG));
      assertRefused(expected, () -> NcclBackend.of(nccl).newCommunicator(id, 2, 1, config));
      assertRefused(expected, () -> NcclBackend.of(nccl).newCommunicatorAsync(id, 2, 1, config));
      assertRefused(expected, () -> NcclBackend.of(nccl).newCommunicator(ids, 2, 1, config));
      assertRefused(expected, () -> NcclBackend.of(nccl).newCommunicatorAsync(ids, 2, 1, config));
      assertRefused(expected, () -> nccl.join(id, 2, 1, CONFIG));
      assertRefused(expected, () -> NcclBackend.of(nccl).join(id, 2, 1, config));
      assertRefused(expected, () -> NcclBackend.of(nccl).joinAsync(id, 2, 1, config));
      assertEquals(before, StandIn.live("communicator"));
    }
  }

  @Test
  void referenceRefusesIdsOfNccl() {
    try (Backend reference = Backend.reference(1);
        Backend nccl = Backend.nccl()) {
      UniqueId id = nccl.newUniqueId();
      String expected = id + " was made by NCCL, but this rank uses the reference backend";
      assertRefused(expected, () -> reference.newCommunicator(id, 2, 1, CONFIG));
      assertRefused(expected, () -> reference.join(id, 2, 1, CONFIG));
    }
  }

  @Test
  void ncclRefusesToEstimateCallsOfTheReference() {
    try (Backend nccl = Backend.nccl();
        Backend reference = Backend.reference(1);
        Communicator other = reference.newCommunicator(reference.newUniqueId(), 1, 0);
        Stream stream = other.newStream();
        Buffer number = other.newBuffer(DataType.INT32, 1)) {
      assertRefused(
          "of another backend",
          () ->
              NcclBackend.of(nccl)
                  .estimate(() -> other.allReduce(number, number, ReduceOp.SUM, stream)));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "tcp, reference nccl reference, rank 1 uses NCCL and rank 0 the reference backend",
    "tcp, nccl nccl reference, rank 2 uses the reference backend and rank 0 NCCL",
    "file, reference nccl reference, rank 1 uses NCCL and rank 0 the reference backend",
    "file, nccl nccl reference, rank 2 uses the reference backend and rank 0 NCCL"
  })
  void processesOnDifferentBackendsFailAtOnce(String kind, String backends, String expected)
      throws Exception {
    String target = kind.equals("tcp") ? "tcp:" + freePort() : "file:" + folder;
    List<Process> ranks = new ArrayList<>();
    String[] each = backends.split(" ", -1);
    long start;
    try {
      for (int rank = 0; rank < each.length; rank++) {
        ranks.add(start(target, rank, each.length, each[rank]));
      }
      // Processes start at different speeds, and a failed rank waits only a few seconds for others.
      for (Process rank : ranks) {
        awaitReady(rank);
      }
      start = System.nanoTime();
      for (Process rank : ranks) {
        rank.getOutputStream().close();
      }
      for (Process rank : ranks) {
        assertTrue(rank.waitFor(2 * TIMEOUT.toSeconds(), TimeUnit.SECONDS), "still running");
        String output = new String(rank.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(output.contains(expected), output);
      }
    } finally {
      ranks.forEach(Process::destroyForcibly);
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(TIMEOUT) < 0, () -> "they waited for the timeout: " + took);
  }

  private static void awaitReady(Process rank) throws IOException {
    StringBuilder output = new StringBuilder();
    while (output.indexOf("ready\n") < 0) {
      int next = rank.getInputStream().read();
      assertTrue(next >= 0, () -> "it ended before it was ready: " + output);
      output.append((char) next);
    }
  }

  private static int freePort() throws IOException {
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return free.getLocalPort();
    }
  }

  private static Process start(String target, int rank, int size, String backend)
      throws IOException {
    List<String> command =
        FinishedProgram.java(
            "-XX:TieredStopAtLevel=1",
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            MixedRank.class.getName(),
            target,
            "" + rank,
            "" + size,
            backend,
            "" + TIMEOUT.toSeconds());
    return new ProcessBuilder(command).redirectErrorStream(true).start();
  }
}
