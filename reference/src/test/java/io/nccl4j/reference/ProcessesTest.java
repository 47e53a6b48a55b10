package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A communicator with ranks in several real processes. */
@Tag("slow")
class ProcessesTest {
  private static final Duration LONG = Duration.ofSeconds(60);

  private static int[] ranks(String perProcess) {
    return perProcess.chars().map(digit -> digit - '0').toArray();
  }

  @ParameterizedTest(name = "{0} ranks per process, {1}")
  @CsvSource({"11, TCP", "111, TCP", "1111, TCP", "212, TCP", "31, TCP", "11, AUTO", "212, AUTO"})
  void everyOperationWorks(String perProcess, Transport links) {
    int[] ranks = ranks(perProcess);
    try (RankProcesses processes = new RankProcesses(links, LONG)) {
      processes.start("everything", "", ranks);
      processes.awaitAll(IntStream.of(ranks).sum(), "ends");
    }
  }

  @ParameterizedTest(name = "another {0}")
  @ValueSource(strings = {"count", "collective", "root"})
  void differingCallIsReportedToEveryRank(String what) {
    try (RankProcesses processes = new RankProcesses(Transport.TCP, LONG)) {
      processes.start("differ", what, 1, 2, 1);
      String expected =
          switch (what) {
            case "count" -> "rank 3 called allReduce(count 7, FLOAT32, sum)";
            case "collective" -> "rank 3 called broadcast(count 8, FLOAT32, root 0)";
            default -> "rank 3 called broadcast(count 8, FLOAT32, root 1)";
          };
      for (int rank = 0; rank < 4; rank++) {
        processes.assertPrinted(rank, "failed with ", "NcclInvalidUsageException", expected);
      }
    }
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  void messageSentBeforeACloseStillArrives(Transport links) {
    try (RankProcesses processes = new RankProcesses(links, LONG)) {
      processes.start("close", "", 1, 1);
      processes.await(0, "received 7");
      processes.assertPrinted(
          0, "failed with ", "NcclRemoteException", "rank 1 closed its communicator");
    }
  }

  @ParameterizedTest(name = "process {0}")
  @ValueSource(ints = {0, 1, 2})
  void processKilledBeforeItConnectsIsNamedAtOnce(int process) {
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, LONG)) {
      processes.start("assign-only", Integer.toString(process), 1, 1, 1);
      processes.await(process, "has the rank map");
      long killed = System.nanoTime();
      processes.signal(process, "KILL");
      for (int rank = 0; rank < 3; rank++) {
        if (rank != process) {
          processes.assertPrinted(
              rank,
              "ended by ",
              "NcclRemoteException",
              "rank " + process + " ",
              "process " + processes.pid(process) + " on ");
        }
      }
      long took = System.nanoTime() - killed;
      assertTrue(took < LONG.toNanos() / 4, () -> "it took " + took + " ns");
    }
  }

  @ParameterizedTest(name = "rank {0}, {1}")
  @CsvSource({"0, AUTO", "0, TCP", "2, AUTO"})
  void callsAfterADeathFailAtOnceAndSurvivorsShrink(int victim, Transport links) {
    try (RankProcesses processes = new RankProcesses(links, LONG)) {
      processes.start("die-idle", Integer.toString(victim), 1, 1, 1, 1);
      processes.awaitAll(4, "is idle");
      processes.signal(victim, "KILL");
      assertSurvivorsContinue(processes, victim, "split failed at once", "grow failed at once");
    }
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  void deathWhileASplitConnectsFailsAllAtOnce(Transport links) {
    try (RankProcesses processes = new RankProcesses(links, LONG)) {
      processes.start("die-connecting", "1", 1, 1, 1, 1);
      processes.await(3, "has the rank map");
      processes.signal(1, "KILL");
      assertSurvivorsContinue(processes, 1, "split failed at once");
    }
  }

  private static void assertSurvivorsContinue(
      RankProcesses processes, int victim, String... failures) {
    for (int rank = 0; rank < 4; rank++) {
      if (rank != victim) {
        for (String failure : failures) {
          processes.assertPrinted(rank, failure, "NcclRemoteException", "rank " + victim + " ");
        }
        processes.await(rank, "sum of the rest " + (15 - (1 << victim)));
      }
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @CsvSource({"TCP, AUTO", "AUTO, RING"})
  void killedRanksAreNamedAtOnceAndTheOthersContinue(Transport links, Algorithm algorithm) {
    try (RankProcesses processes = new RankProcesses(links, algorithm, LONG)) {
      processes.start("loop", "3", 2, 1, 1);
      processes.awaitAll(4, "is in the middle");
      long killed = System.nanoTime();
      processes.signal(2, "KILL");
      for (int rank = 0; rank < 3; rank++) {
        processes.assertPrinted(
            rank,
            "failed with ",
            "NcclRemoteException",
            "rank 3",
            "process " + processes.pid(2) + " on ");
      }
      long took = System.nanoTime() - killed;
      assertTrue(took < LONG.toNanos() / 2, () -> "it took " + took + " ns");
      for (int rank = 0; rank < 3; rank++) {
        processes.await(rank, "sum of the rest 7");
      }
    }
  }

  /** All links and algorithms wait at the same time, so that the timeout can be longer. */
  @Test
  void stoppedRanksAreNamedAndTheOthersContinue() {
    // A process that does not answer within a quarter of it counts as missing, too.
    Duration timeout = Duration.ofSeconds(18);
    try (RankProcesses tcp = new RankProcesses(Transport.TCP, Algorithm.AUTO, timeout);
        RankProcesses ring = new RankProcesses(Transport.AUTO, Algorithm.RING, timeout);
        RankProcesses messages = new RankProcesses(Transport.AUTO, timeout)) {
      List<RankProcesses> all = List.of(tcp, ring, messages);
      for (RankProcesses processes : all) {
        processes.start(processes == messages ? "chain" : "loop", "0", 1, 1, 2);
        processes.awaitAll(4, "is in the middle");
        processes.signal(0, "STOP");
      }
      all.forEach(ProcessesTest::assertStoppedRankIsNamed);
    }
  }

  private static void assertStoppedRankIsNamed(RankProcesses processes) {
    for (int rank = 1; rank < 4; rank++) {
      processes.assertPrinted(
          rank,
          "failed with ",
          "NcclTimeoutException",
          "rank 0 (process " + processes.pid(0) + " on ",
          "did not answer");
    }
    for (int rank = 1; rank < 4; rank++) {
      processes.await(rank, "sum of the rest 14");
    }
  }

  @Test
  void invalidDataOnATcpLinkNamesItsRank() {
    try (RankProcesses processes = new RankProcesses(Transport.TCP, LONG)) {
      processes.start("invalid-data", "1", 1, 1, 1);
      for (int rank : new int[] {0, 2}) {
        processes.assertPrinted(
            rank,
            "failed with ",
            "NcclRemoteException",
            "rank 1 (process " + processes.pid(1) + " on ",
            "violated the protocol: slice ",
            "has magic 0x73696854; it must be 0x4e43344b");
        processes.await(rank, "sum of the rest 5");
      }
    }
  }

  @Test
  void invalidDataInSharedMemoryNamesItsRank() {
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, Algorithm.RING, LONG)) {
      processes.start("invalid-data", "1", 1, 1, 1);
      for (int rank : new int[] {0, 2}) {
        processes.assertPrinted(
            rank,
            "failed with ",
            "NcclRemoteException",
            "rank 1 (process " + processes.pid(1) + " on ",
            "violated the protocol: it sent slice " + 0x7373737373737373L + " instead of ");
        processes.await(rank, "sum of the rest 5");
      }
    }
  }

  @Test
  void killedProcessesLeaveNoSharedMemory() throws Exception {
    List<Long> pids = new ArrayList<>();
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, Algorithm.RING, LONG)) {
      processes.start("loop", "0", 1, 1, 1);
      processes.awaitAll(3, "is in the middle");
      for (int process = 0; process < 3; process++) {
        pids.add(processes.pid(process));
        processes.signal(process, "KILL");
      }
    }
    assertEquals(Set.of(), SharedNames.thatStay(pids));
  }

  @Test
  void linksUseTcpIfSharedMemoryIsFull() {
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, Algorithm.RING, LONG)) {
      processes.limitFiles(64);
      processes.start("everything", "", 1, 1);
      processes.awaitAll(2, "ends");
      String output = processes.toString();
      assertTrue(output.contains("uses TCP instead of shared memory: "), output);
      assertTrue(output.contains("bytes of shared memory cannot be allocated in "), output);
    }
  }

  /** Waits for two ranks to end; a rank that has failed has printed that before. */
  private static void awaitSuccess(RankProcesses processes) {
    processes.awaitAll(2, "ends");
    String output = processes.toString();
    assertFalse(output.contains("ended by"), output);
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void processWithoutSharedMemoryMakesBothUseTcp(int limited) {
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, LONG)) {
      String id = ReferenceBackend.open(1).newUniqueId().toHex();
      processes.start(id, 2, IntStream.of(1 - limited), "everything", "");
      processes.limitFiles(64);
      processes.start(id, 2, IntStream.of(limited), "everything", "");
      awaitSuccess(processes);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void processesOfTwoUsersExchangeDataOverTcp(int another) throws Exception {
    assumeTrue(
        Files.getOwner(Path.of("/proc/self")).getName().equals("root"),
        "only root can start processes of other users");
    try (RankProcesses processes = new RankProcesses(Transport.AUTO, LONG)) {
      String id = ReferenceBackend.open(1).newUniqueId().toHex();
      processes.start(id, 2, IntStream.of(1 - another), "everything", "");
      processes.changeUser();
      processes.start(id, 2, IntStream.of(another), "everything", "");
      awaitSuccess(processes);
      String output = processes.toString();
      assertTrue(output.contains("uses TCP instead of shared memory: "), output);
      assertTrue(output.contains("cannot be opened: java.nio.file.AccessDenied"), output);
    }
  }

  @Test
  void invalidControlMessageNamesItsRank() {
    try (RankProcesses processes = new RankProcesses(Transport.TCP, LONG)) {
      processes.start("invalid-control", "2", 1, 1, 1);
      for (int rank = 0; rank < 2; rank++) {
        processes.assertPrinted(
            rank,
            "failed with ",
            "NcclRemoteException",
            "rank 2 (process " + processes.pid(2) + " on ",
            "violated the protocol: a message has magic 0x54686973; it must be 0x4e43344a");
        processes.await(rank, "sum of the rest 3");
      }
    }
  }

  @Test
  void newProcessesJoinByTheIdOfAGrow() {
    try (RankProcesses processes = new RankProcesses(Transport.TCP, LONG)) {
      processes.start("grow", "5", 1, 2);
      String id = processes.await(2, "id ").substring("rank 2: id ".length());
      processes.start(id, 5, IntStream.of(3), "join", "");
      processes.start(id, 5, IntStream.of(4), "join", "");
      processes.awaitAll(5, "sum of all 31");
      processes.awaitAll(3, "sum of the parent 3");
    }
  }
}
