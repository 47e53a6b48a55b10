package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests that graphs are destroyed before their communicators: NCCL does not destroy a communicator
 * while a graph contains its operations, and waits without a deadline.
 */
@OnStandIn
class GraphLifetimeTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(40);
  private static final Duration SOON = Duration.ofSeconds(20);
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(TIMEOUT);

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();

  private long graphs;

  @BeforeEach
  void countGraphs() {
    graphs = StandIn.live("graph");
  }

  @Test
  void abortDuringLaunch_destroysGraphAndCommunicator() {
    try (Pair pair = connected();
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Graph graph = capture(pair.stream(0), () -> sum(pair.rank(0), value, pair.stream(0)));
      graph.launch(pair.stream(0));
      soon(pair.rank(0)::abort);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      assertEquals(1, communicators.live(), "rank 1's");
      assertEquals(graphs, StandIn.live("graph"));
      IllegalStateException refused =
          assertThrows(IllegalStateException.class, () -> graph.launch(pair.stream(0)));
      assertEquals("aborted: " + pair.rank(0), refused.getMessage());
      graph.close();
      pair.abort();
    }
  }

  @Test
  void graphOfTwoCommunicators_isDestroyedWithTheFirst() {
    try (Pair one = connected();
        Pair two = connected();
        Buffer value = one.rank(0).newBuffer(DataType.INT32, 4)) {
      Stream stream = one.stream(0);
      Runnable both =
          () -> {
            sum(one.rank(0), value, stream);
            sum(two.rank(0), value, stream);
          };
      Graph graph = capture(stream, both);
      soon(one.rank(0)::abort);
      assertEquals(graphs, StandIn.live("graph"));
      soon(two.rank(0)::close);
      assertFalse(two.rank(0).isAborted());
      graph.close();
      one.abort();
      two.abort();
    }
  }

  @Test
  void abortDuringCapture_destroysTheNewGraph() {
    try (Pair pair = connected();
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Stream stream = pair.stream(0);
      Thread[] aborter = new Thread[1];
      Runnable abortMeanwhile =
          () -> {
            sum(pair.rank(0), value, stream);
            aborter[0] = Thread.ofPlatform().start(pair.rank(0)::abort);
            while (!pair.rank(0).isAborted()) {
              Thread.onSpinWait();
            }
          };
      Graph graph = capture(stream, abortMeanwhile);
      soon(() -> join(aborter[0]));
      assertEquals(graphs, StandIn.live("graph"));
      IllegalStateException refused =
          assertThrows(IllegalStateException.class, () -> graph.launch(stream));
      assertEquals("aborted: " + pair.rank(0), refused.getMessage());
      graph.close();
      pair.abort();
    }
  }

  @Test
  void revoke_destroysGraphs() {
    try (Pair pair = connected();
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Graph graph = capture(pair.stream(0), () -> sum(pair.rank(0), value, pair.stream(0)));
      pair.nccl(0).revoke();
      assertEquals(graphs, StandIn.live("graph"));
      assertThrows(IllegalStateException.class, () -> graph.launch(pair.stream(0)));
      graph.close();
      pair.nccl(1).revoke();
    }
  }

  @Test
  void graphsOfOneCapture_areDestroyedWithTheirRanks() {
    try (Pair pair = connected();
        Buffer zero = pair.rank(0).newBuffer(DataType.INT32, 1);
        Buffer one = pair.rank(1).newBuffer(DataType.INT32, 1)) {
      pair.upload(0, zero, 1);
      pair.upload(1, one, 1);
      Runnable together =
          () ->
              Group.run(
                  () -> {
                    sum(pair.rank(0), zero, pair.stream(0));
                    sum(pair.rank(1), one, pair.stream(1));
                  });
      List<Graph> both = Graph.capture(List.of(pair.stream(0), pair.stream(1)), together);
      for (int i = 0; i < 3; i++) {
        both.get(0).launch(pair.stream(0));
        both.get(1).launch(pair.stream(1));
      }
      assertEquals(8, pair.download(0, zero)[0]);
      soon(pair.rank(0)::abort);
      assertEquals(graphs + 1, StandIn.live("graph"));
      both.get(1).close();
      assertEquals(graphs, StandIn.live("graph"));
      soon(pair.rank(1)::close);
      assertFalse(pair.rank(1).isAborted());
      both.get(0).close();
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
    }
  }

  /** Returns two ranks that have completed a collective, so that later calls do not connect. */
  private static Pair connected() {
    Pair pair = new Pair(CONFIG);
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    Group.run(
        () -> {
          sum(pair.rank(0), values.get(0), pair.stream(0));
          sum(pair.rank(1), values.get(1), pair.stream(1));
        });
    pair.stream(0).synchronize();
    pair.stream(1).synchronize();
    values.forEach(Buffer::close);
    return pair;
  }

  private static Graph capture(Stream stream, Runnable body) {
    return Graph.capture(List.of(stream), body).getFirst();
  }

  private static void sum(Communicator comm, Buffer value, Stream stream) {
    comm.allReduce(value, value, ReduceOp.SUM, stream);
  }

  private static void join(Thread thread) {
    try {
      assertTrue(thread.join(TIMEOUT), "the thread is still running");
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** Runs an action and checks that it takes less than the communicators' timeout. */
  private static void soon(Runnable action) {
    long start = System.nanoTime();
    action.run();
    Duration taken = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(taken.compareTo(SOON) < 0, () -> "took " + taken);
  }
}
