package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Graphs: operations that are captured once and launched repeatedly. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GraphsContract {
  // Less than the timeout of the suite's communicators.
  private static final long MAX_CLOSE_SECONDS = 10;

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 5);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void capturedWorkRunsAtEachLaunchOnly(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1, 10);
            rank.stream().synchronize();
            try (Graph graph = capture(rank, () -> sum(rank, value))) {
              assertArrayEquals(new int[] {1, 10}, rank.downloadInts(value));
              graph.launch(rank.stream());
              assertArrayEquals(new int[] {n, 10 * n}, rank.downloadInts(value));
              graph.launch(rank.stream());
              graph.launch(rank.stream());
              assertArrayEquals(new int[] {n * n * n, 10 * n * n * n}, rank.downloadInts(value));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void capturedOperationsAndGroupsRunInOrder(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int me = rank.rank();
            Buffer value = rank.ints(me + 1);
            Buffer shifted = rank.ints(0);
            rank.stream().synchronize();
            Runnable shiftThenSum =
                () -> {
                  Group.run(
                      () -> {
                        rank.comm().send(value, (me + 1) % n, rank.stream());
                        rank.comm().recv(shifted, (me + n - 1) % n, rank.stream());
                      });
                  rank.comm().allReduce(shifted, value, ReduceOp.SUM, rank.stream());
                };
            try (Graph graph = capture(rank, shiftThenSum)) {
              graph.launch(rank.stream());
              assertArrayEquals(new int[] {n * (n + 1) / 2}, rank.downloadInts(value));
              assertArrayEquals(new int[] {(me + n - 1) % n + 1}, rank.downloadInts(shifted));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadCapturesAllRanks(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Buffer> values = new ArrayList<>();
      ranks.inOneThread(rank -> values.add(rank.ints(rank.rank() + 1)));
      ranks.inOneThread(rank -> rank.stream().synchronize());
      List<Stream> streams = ranks.all().stream().map(Rank::stream).toList();
      List<Graph> graphs =
          Graph.capture(
              streams,
              () -> Group.run(() -> ranks.inOneThread(rank -> sum(rank, values.get(rank.rank())))));
      assertEquals(n, graphs.size());
      ranks.inOneThread(rank -> graphs.get(rank.rank()).launch(rank.stream()));
      ranks.inOneThread(
          rank ->
              assertArrayEquals(
                  new int[] {n * (n + 1) / 2}, rank.downloadInts(values.get(rank.rank()))));
      graphs.forEach(Graph::close);
    }
  }

  @Test
  void graphLaunchesOnAnotherStreamOfItsDevice() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(7);
            Buffer copy = rank.ints(0);
            rank.stream().synchronize();
            Runnable copying =
                () -> rank.comm().allReduce(value, copy, ReduceOp.SUM, rank.stream());
            try (Graph graph = capture(rank, copying);
                Stream other = rank.comm().newStream()) {
              graph.launch(other);
              other.synchronize();
              assertArrayEquals(new int[] {7}, rank.downloadInts(copy));
            }
          });
    }
  }

  @Test
  void exceptionInCaptureLeavesStreamUsable() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            rank.stream().synchronize();
            IllegalStateException cause = new IllegalStateException("on purpose");
            assertSame(
                cause,
                assertThrows(
                    IllegalStateException.class,
                    () ->
                        capture(
                            rank,
                            () -> {
                              sum(rank, value);
                              throw cause;
                            })));
            sum(rank, value);
            assertArrayEquals(new int[] {5}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void uncapturableCallsAreRefusedByName() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Stream stream = rank.stream();
            Buffer value = rank.ints(5);
            Event event = rank.comm().newEvent();
            stream.synchronize();
            Runnable refusals =
                () -> {
                  refused("synchronize", stream::synchronize);
                  refused("isComplete", stream::isComplete);
                  refused("completion", stream::completion);
                  refused("a copy", () -> rank.downloadInts(value));
                  refused("a copy", () -> value.fill((byte) 0, stream));
                  refused("close", stream::close);
                  refused("an event", () -> stream.record(event));
                };
            capture(rank, refusals).close();
            event.close();
            assertArrayEquals(new int[] {5}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void creatingOrClosingInCaptureIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            rank.stream().synchronize();
            Runnable refusals =
                () -> {
                  refusedInCapture("a capture", () -> capture(rank, () -> {}));
                  refusedInCapture("allocating", () -> rank.comm().newBuffer(DataType.INT8, 1));
                  refusedInCapture("making a stream", rank.comm()::newStream);
                  refusedInCapture("making an event", rank.comm()::newEvent);
                  refusedInCapture("newGrowId", rank.comm()::newGrowId);
                  refusedInCapture("closing a communicator", rank.comm()::close);
                  refusedInCapture("closing a buffer", value::close);
                  rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                };
            capture(rank, refusals).close();
            assertTrue(rank.comm().isOpen());
            assertArrayEquals(new int[] {5}, rank.downloadInts(value));
          });
    }
  }

  private static void refusedInCapture(String call, Executable use) {
    IllegalStateException thrown = assertThrows(IllegalStateException.class, use);
    assertEquals(
        call + " is not possible in Graph.capture; only operations are", thrown.getMessage());
  }

  @Test
  void operationOfAnotherThreadIsNotCaptured() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            rank.stream().synchronize();
            AtomicReference<Throwable> refusal = new AtomicReference<>();
            Runnable otherThread =
                () ->
                    refusal.set(
                        assertThrows(
                            IllegalStateException.class,
                            () ->
                                rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream())));
            capture(
                    rank,
                    () -> assertDoesNotThrow(() -> Thread.ofPlatform().start(otherThread).join()))
                .close();
            assertTrue(
                refusal.get().getMessage().contains("captures this stream"),
                () -> refusal.get().toString());
          });
    }
  }

  @Test
  void capturingThreadIsNotRetained() throws InterruptedException {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Stream stream = ranks.rank(0).stream();
      WeakReference<Thread> thread = captureInNewThread(stream);
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
      while (thread.get() != null && System.nanoTime() < end) {
        System.gc();
        Thread.sleep(1);
      }
      assertNull(thread.get(), () -> "retained by " + stream);
    }
  }

  /** Captures an empty graph in a new thread; returns that thread, which has ended. */
  private static WeakReference<Thread> captureInNewThread(Stream stream)
      throws InterruptedException {
    CompletableFuture<Graph> captured = new CompletableFuture<>();
    Thread thread =
        Thread.ofPlatform()
            .start(() -> captured.complete(Graph.capture(List.of(stream), () -> {}).getFirst()));
    thread.join();
    captured.getNow(null).close();
    return new WeakReference<>(thread);
  }

  private static void refused(String call, Executable use) {
    IllegalStateException thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(
        thrown
            .getMessage()
            .startsWith(call + " is not possible on a stream that is being captured"),
        thrown::toString);
  }

  @Test
  void launchWithClosedBufferOrGraphIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.comm().newBuffer(DataType.INT32, 1);
            Graph graph = capture(rank, () -> sum(rank, value));
            value.close();
            IllegalStateException thrown =
                assertThrows(IllegalStateException.class, () -> graph.launch(rank.stream()));
            assertTrue(thrown.getMessage().startsWith("send is closed"), thrown::toString);
            graph.close();
            graph.close();
            thrown = assertThrows(IllegalStateException.class, () -> graph.launch(rank.stream()));
            assertTrue(thrown.getMessage().startsWith("graph is closed"), thrown::toString);
          });
    }
  }

  @Test
  void closeEndsOpenGraphs() {
    endsOpenGraphs("closed: ", Communicator::close);
  }

  @Test
  void abortEndsOpenGraphs() {
    endsOpenGraphs("aborted: ", Communicator::abort);
  }

  private void endsOpenGraphs(String refusal, Consumer<Communicator> end) {
    try (Ranks ranks = Ranks.of(underTest(), Math.min(2, underTest().maxRanks()))) {
      Graph[] graphs = new Graph[ranks.size()];
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.stream().synchronize();
            graphs[rank.rank()] = capture(rank, () -> sum(rank, value));
            graphs[rank.rank()].launch(rank.stream());
            assertArrayEquals(new int[] {ranks.size()}, rank.downloadInts(value));
          });
      ranks.each(
          rank -> {
            Graph graph = graphs[rank.rank()];
            long start = System.nanoTime();
            end.accept(rank.comm());
            long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start);
            assertTrue(seconds < MAX_CLOSE_SECONDS, () -> seconds + " s");
            IllegalStateException thrown =
                assertThrows(IllegalStateException.class, () -> graph.launch(rank.stream()));
            assertEquals(refusal + rank.comm(), thrown.getMessage());
            graph.close();
            thrown = assertThrows(IllegalStateException.class, () -> graph.launch(rank.stream()));
            assertTrue(thrown.getMessage().startsWith("graph is closed"), thrown::toString);
            try {
              rank.stream().synchronize();
            } catch (NcclException expected) {
              // An abort is reported once on each stream; a close is not.
            }
          });
    }
  }

  @Test
  void duplicateEmptyOrGroupedCaptureIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Stream stream = ranks.rank(0).stream();
      assertThrows(
          IllegalArgumentException.class, () -> Graph.capture(List.of(stream, stream), () -> {}));
      assertThrows(IllegalArgumentException.class, () -> Graph.capture(List.of(), () -> {}));
      assertThrows(
          IllegalStateException.class,
          () -> Group.run(() -> Graph.capture(List.of(stream), () -> {})));
      assertTrue(stream.isComplete());
    }
  }

  private static Graph capture(Rank rank, Runnable body) {
    return Graph.capture(List.of(rank.stream()), body).getFirst();
  }

  private static void sum(Rank rank, Buffer value) {
    rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
  }
}
