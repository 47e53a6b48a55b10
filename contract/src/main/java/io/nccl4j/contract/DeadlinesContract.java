package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Feature;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.TimeoutAction;
import java.time.Duration;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** The deadline of operations that the device does not complete: NCCL itself has none. */
abstract class DeadlinesContract {
  private static final Duration TIMEOUT = Duration.ofSeconds(2);
  private static final Duration LIMIT = Duration.ofSeconds(40);

  abstract BackendUnderTest underTest();

  /** Returns two ranks that have connected, so that enqueuing does not block. */
  private Ranks ranks(TimeoutAction action) {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    ProcessRank.assumeNone(2);
    CommunicatorConfig config = underTest().config().withTimeout(TIMEOUT).withTimeoutAction(action);
    Ranks ranks = Ranks.of(underTest(), 2, config);
    ranks.each(DeadlinesContract::sumOne);
    return ranks;
  }

  private static void sumOne(Rank rank) {
    Buffer one = rank.ints(1);
    rank.comm().allReduce(one, one, ReduceOp.SUM, rank.stream());
    assertArrayEquals(new int[] {2}, rank.downloadInts(one));
  }

  /** Closes ranks whose operations have ended. */
  private static void end(Ranks ranks) {
    ranks.abort();
    ranks.close();
  }

  private static NcclTimeoutException timeoutOf(Runnable wait) {
    long start = System.nanoTime();
    NcclTimeoutException thrown = assertThrows(NcclTimeoutException.class, wait::run);
    assertTrue(System.nanoTime() - start < LIMIT.toNanos() / 2, thrown::toString);
    assertTrue(thrown.getMessage().contains("not finished after 2.0 s: "), thrown::toString);
    return thrown;
  }

  @Test
  void waitThrowsWhenAPeerDoesNotCall() {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    Rank rank = ranks.rank(0);
    Communicator comm = rank.comm();
    try (Buffer value = rank.ints(1)) {
      comm.allReduce(value, value, ReduceOp.SUM, rank.stream());
      NcclTimeoutException thrown = timeoutOf(() -> rank.stream().synchronize(LIMIT));
      assertEquals("allReduce", thrown.function());
      assertEquals(Operation.ALL_REDUCE, thrown.operation().orElseThrow());
      assertEquals(2, thrown.sequenceNumber().orElseThrow());
      assertTrue(thrown.getMessage().contains(comm.toString()), thrown::toString);
      assertTrue(comm.isAborted());
      assertEquals(comm.backend().supports(Feature.REVOKE), comm.isOpen());
      if (comm.isOpen()) {
        timeoutOf(() -> rank.stream().synchronize(LIMIT)); // as every wait does
        comm.abort();
        timeoutOf(() -> rank.stream().synchronize(LIMIT));
      }
      rank.stream().synchronize(LIMIT); // the device has ended the operation
    } finally {
      end(ranks);
    }
  }

  @Test
  void everyWaitThrows() {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    Rank rank = ranks.rank(0);
    try (Stream other = rank.comm().newStream();
        Buffer value = rank.ints(1);
        Buffer another = rank.ints(1)) {
      rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
      rank.comm().allReduce(another, another, ReduceOp.SUM, other);
      timeoutOf(() -> rank.downloadInts(value));
      timeoutOf(() -> other.synchronize(LIMIT));
      assertEquals(ranks.backend().supports(Feature.REVOKE), rank.comm().isOpen());
    } finally {
      end(ranks);
    }
  }

  @Test
  void groupIsNamedByItsFirstCall() {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    Rank rank = ranks.rank(0);
    try (Buffer value = rank.ints(1);
        Buffer another = rank.ints(1)) {
      Group.run(
          () -> {
            rank.comm().broadcast(value, 1, rank.stream());
            rank.comm().allReduce(another, another, ReduceOp.SUM, rank.stream());
          });
      NcclTimeoutException thrown = timeoutOf(() -> rank.stream().synchronize(LIMIT));
      assertEquals("broadcast", thrown.function());
      assertEquals(2, thrown.sequenceNumber().orElseThrow());
    } finally {
      end(ranks);
    }
  }

  @Test
  void launchOfAGraphIsNamedByItsFirstCall() {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    Rank rank = ranks.rank(0);
    try (Buffer value = rank.ints(1)) {
      // Not closed: the end of the communicator ends it.
      Graph graph =
          Graph.capture(
              rank.stream(),
              () -> rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream()));
      graph.launch(rank.stream());
      NcclTimeoutException thrown = timeoutOf(() -> rank.stream().synchronize(LIMIT));
      assertEquals("allReduce", thrown.function());
      assertEquals(2, thrown.sequenceNumber().orElseThrow());
    } finally {
      end(ranks);
    }
  }

  @Test
  void survivorContinuesAfterTheTimeout() {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    Rank rank = ranks.rank(0);
    assumeTrue(ranks.backend().supports(Feature.REVOKE), "needs ncclCommRevoke");
    try (Buffer value = rank.ints(7)) {
      rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
      NcclTimeoutException thrown = timeoutOf(() -> rank.stream().synchronize(LIMIT));
      Recovery recovery = Recovery.defaults().withLostRanks(Set.of(1)).withMinority(true);
      try (Communicator rest = recovery.recover(rank.comm(), thrown);
          Stream stream = rest.newStream();
          Buffer alone = rest.newBuffer(DataType.INT32, 1)) {
        alone.copyFromAsync(new int[] {5}, stream);
        rest.allReduce(alone, alone, ReduceOp.SUM, stream);
        int[] sum = new int[1];
        alone.copyTo(sum, stream);
        assertArrayEquals(new int[] {5}, sum);
      }
    } finally {
      end(ranks);
    }
  }

  @Test
  void reportedOperationCompletesLater() throws InterruptedException {
    Ranks ranks = ranks(TimeoutAction.REPORT);
    try {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(3);
      rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
      // Longer than the timeout, after which nothing happens.
      Thread.sleep(TIMEOUT.plusMillis(700));
      assertFalse(rank.stream().isComplete());
      Buffer late = ranks.rank(1).ints(4);
      ranks.rank(1).comm().allReduce(late, late, ReduceOp.SUM, ranks.rank(1).stream());
      assertArrayEquals(new int[] {7}, rank.downloadInts(value));
    } finally {
      ranks.close();
    }
  }

  @Test
  void progressPostponesTheDeadline() throws InterruptedException {
    Ranks ranks = ranks(TimeoutAction.ABORT);
    try {
      Rank rank = ranks.rank(0);
      Rank late = ranks.rank(1);
      Buffer value = rank.comm().newBuffer(DataType.INT32, 1);
      for (int i = 0; i < 3; i++) {
        rank.comm().broadcast(value, 1, rank.stream());
      }
      for (int i = 0; i < 3; i++) {
        Thread.sleep(TIMEOUT.toMillis() / 2);
        Buffer sent = late.ints(i);
        late.comm().broadcast(sent, 1, late.stream());
        late.stream().synchronize();
      }
      assertArrayEquals(new int[] {2}, rank.downloadInts(value));
    } finally {
      ranks.close();
    }
  }
}
