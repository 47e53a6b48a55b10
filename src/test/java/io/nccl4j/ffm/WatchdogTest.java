package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.TimeoutAction;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.nccl.NcclCommunicator;
import java.lang.ProcessBuilder.Redirect;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What is logged and done while no thread waits for operations that do not complete. */
@OnStandIn
class WatchdogTest {
  private static final long LIMIT_NANOS = 20_000_000_000L;

  @BeforeEach
  void connectBeforeCalls() {
    StandIn.connect(false);
  }

  @AfterEach
  void reset() {
    StandIn.reset();
  }

  private static CommunicatorConfig config(int seconds, TimeoutAction action) {
    return CommunicatorConfig.defaults()
        .withTimeout(Duration.ofSeconds(seconds))
        .withTimeoutAction(action)
        .withName("train");
  }

  private static void await(BooleanSupplier condition) throws InterruptedException {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() - start < LIMIT_NANOS, "nothing happens");
      Thread.sleep(10);
    }
  }

  @Test
  void warningPrecedesTheReport() throws Exception {
    try (Pair pair = new Pair(config(2, TimeoutAction.REPORT));
        LogLines log = new LogLines(Communicator.class);
        Stream stream = pair.rank(0).newStream();
        Buffer value = pair.rank(0).newBuffer(DataType.FLOAT32, 1)) {
      pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
      await(() -> log.lines().size() == 2);
      List<String> expected =
          List.of("allReduce: not finished after 1.", "allReduce: not finished after 2.0 s: ");
      for (int i = 0; i < 2; i++) {
        String line = log.lines().get(i);
        assertTrue(line.startsWith(expected.get(i)), line);
        assertTrue(line.contains("; collective 1 of Communicator[train: rank 0 of 2, "), line);
      }
      assertFalse(pair.rank(0).isAborted());
      pair.rank(0).abort();
    }
  }

  private static ProcessBuilder hangingRank(int seconds, boolean inCall) {
    return FinishedProgram.builder(
        Map.of(),
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            HangingRank.class.getName(),
            "" + seconds,
            "" + inCall));
  }

  /** As its peers may have been, so that they are late for no other reason. */
  @Test
  void stoppedProcessHasTheTimeThatWasLeft() throws Exception {
    Process inCall = hangingRank(12, true).redirectError(Redirect.DISCARD).start();
    Process inWait = hangingRank(12, false).redirectError(Redirect.DISCARD).start();
    List<Process> ranks = List.of(inCall, inWait);
    try {
      for (Process rank : ranks) {
        assertEquals("waits", rank.inputReader().readLine());
      }
      Thread.sleep(3_000); // until they wait
      for (Process rank : ranks) {
        signal(rank, "STOP");
      }
      Thread.sleep(12_000);
      for (Process rank : ranks) {
        signal(rank, "CONT");
      }
      assertFalse(inCall.waitFor(4, TimeUnit.SECONDS), "it had some nine seconds left");
      assertTrue(inWait.isAlive(), "it had some nine seconds left");
      for (Process rank : ranks) {
        assertTrue(rank.waitFor(1, TimeUnit.MINUTES));
        assertEquals(1, rank.exitValue());
      }
    } finally {
      ranks.forEach(Process::destroyForcibly);
    }
  }

  private static void signal(Process process, String name) throws Exception {
    assertEquals(0, new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor());
  }

  @Test
  void exitEndsTheProcessWithoutHooks() throws Exception {
    FinishedProgram ended = FinishedProgram.run(hangingRank(1, false));
    assertEquals(1, ended.status(), ended::output);
    assertTrue(ended.out().startsWith("waits\n"), ended::output);
    assertTrue(ended.out().endsWith("; the process ends\n"), ended::output);
    assertEquals(2, ended.out().lines().count(), ended::output);
  }

  /** Of operations that were launched together, each ends as its own communicator says. */
  @Test
  void eachCommunicatorOfAGroupHasItsOwnAction() throws Exception {
    try (Pair reported = new Pair(config(2, TimeoutAction.REPORT));
        Pair aborted = new Pair(config(2, TimeoutAction.ABORT));
        Stream stream = reported.rank(0).newStream();
        Buffer value = reported.rank(0).newBuffer(DataType.FLOAT32, 1);
        Buffer another = reported.rank(0).newBuffer(DataType.FLOAT32, 1)) {
      Group.run(
          () -> {
            reported.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
            aborted.rank(0).allReduce(another, another, ReduceOp.SUM, stream);
          });
      await(aborted.rank(0)::isAborted);
      Thread.sleep(500);
      assertFalse(reported.rank(0).isAborted());
      Communicator.abortAll(List.of(reported.rank(0), aborted.rank(0)));
    }
  }

  @Test
  void failureIsLoggedWithinASecondWithoutAWait() throws Exception {
    try (Pair pair = new Pair(config(20, TimeoutAction.ABORT));
        LogLines log = new LogLines(Communicator.class)) {
      NcclCommunicator failed = NcclCommunicator.of(pair.rank(0));
      assertThrows(
          NcclRemoteException.class, () -> failed.callNative("failRank", WatchdogTest::failRank));
      await(() -> !log.lines().isEmpty());
      String line = log.lines().getFirst();
      assertTrue(line.contains("REMOTE_ERROR"), line);
      assertTrue(line.contains("Communicator[train: rank 0 of 2, "), line);
      Thread.sleep(1500);
      assertEquals(1, log.lines().size(), log.lines()::toString);
      pair.rank(0).abort();
    }
  }

  private static int failRank(MemorySegment communicator) {
    StandIn.failRank(communicator, 0, NcclResult.REMOTE_ERROR.code());
    return NcclResult.SUCCESS.code();
  }

  @Test
  void moreLaunchesThanAreFollowedEndToo() {
    try (Pair pair = new Pair(config(2, TimeoutAction.ABORT));
        Stream stream = pair.rank(0).newStream();
        Buffer value = pair.rank(0).newBuffer(DataType.FLOAT32, 1)) {
      StandIn.queue(10_000);
      for (int i = 0; i < 3000; i++) {
        pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
      }
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> stream.synchronize(Duration.ofMinutes(1)));
      assertEquals(1, late.sequenceNumber().orElseThrow());
      pair.rank(0).abort();
    }
  }
}
