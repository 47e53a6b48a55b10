package io.nccl4j.reference;

import static io.nccl4j.reference.ForgottenOwners.REPORTER;
import static io.nccl4j.reference.ForgottenOwners.collect;
import static io.nccl4j.reference.ForgottenOwners.collectUntil;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.LogLines;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Tests the reports of communicators and streams of the reference that were not closed. */
class LeakTest {
  private final Backend backend = Backend.reference(2);
  private final LogLines log = new LogLines(REPORTER);

  @AfterEach
  void close() {
    log.close();
    backend.close();
  }

  /** Returns the number of reports of an object. */
  private long reports(String description) {
    return log.lines().stream().filter(line -> line.startsWith(description)).count();
  }

  private static boolean runs(String thread) {
    return Thread.getAllStackTraces().keySet().stream()
        .anyMatch(running -> running.getName().equals(thread));
  }

  @Test
  void forgottenOwnersAreReportedOnceWithTheirCreator() {
    List<String> forgotten = ForgottenOwners.use(backend, "forgotten", false);
    collectUntil(() -> forgotten.stream().allMatch(each -> reports(each) > 0));
    collect();
    for (String each : forgotten) {
      assertEquals(1, reports(each), each);
    }
    long created =
        log.thrown().stream().filter(e -> ForgottenOwners.creator(e).equals("use")).count();
    assertEquals(forgotten.size(), created);
  }

  @Test
  void threadOfForgottenStreamEnds() {
    long number = forgetStreamWithThread();
    String thread = "nccl4j-stream-" + number + "-device-0";
    collectUntil(() -> !runs(thread));
    assertEquals(1, reports("stream " + number + " of "));
  }

  private long forgetStreamWithThread() {
    Stream stream = backend.newStream(0);
    try (Buffer data = backend.newBuffer(0, DataType.INT32, 1000)) {
      data.fill((byte) 1, stream);
      stream.synchronize();
    }
    assertTrue(runs("nccl4j-stream-" + stream.number() + "-device-0"));
    return stream.number();
  }

  @Test
  void forgottenStreamIsReportedWhileItsCommunicatorIsOpen() {
    try (Communicator only = backend.newCommunicators(0).getFirst();
        Buffer data = only.newBuffer(DataType.INT32, 1000)) {
      String forgotten = reduceAndForgetStream(only, data);
      collectUntil(() -> reports(forgotten) > 0);
    }
  }

  private static String reduceAndForgetStream(Communicator only, Buffer data) {
    Stream stream = only.newStream();
    data.fill((byte) 1, stream);
    only.allReduce(data, data, ReduceOp.SUM, stream);
    stream.synchronize();
    return ForgottenOwners.describe(stream);
  }

  @Test
  void forgottenCommunicatorIsReportedWhileItsStreamIsOpen() {
    try (Stream stream = backend.newStream(0)) {
      String forgotten = reduceAndForgetCommunicator(backend, stream);
      collectUntil(() -> reports(forgotten) > 0);
    }
  }

  private static String reduceAndForgetCommunicator(Backend backend, Stream stream) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName("stream kept");
    Communicator only = backend.newCommunicators(new int[] {0}, config).getFirst();
    try (Buffer data = only.newBuffer(DataType.INT32, 1000)) {
      data.fill((byte) 1, stream);
      only.allReduce(data, data, ReduceOp.SUM, stream);
      stream.synchronize();
    }
    return only.toString();
  }

  @Test
  void closedOwnersAreNotReported() {
    List<String> closed = ForgottenOwners.use(backend, "closed", true);
    String forgotten = ForgottenOwners.forgetStream(backend);
    collectUntil(() -> reports(forgotten) > 0);
    for (String each : closed) {
      assertEquals(0, reports(each), each);
    }
  }

  @Test
  void abortedCommunicatorIsNotReported() {
    backend
        .newCommunicators(new int[] {0, 1}, CommunicatorConfig.defaults().withName("aborted"))
        .forEach(Communicator::abort);
    String forgotten = ForgottenOwners.forgetStream(backend);
    collectUntil(() -> reports(forgotten) > 0);
    assertEquals(0, reports("Communicator[aborted"));
  }

  @Test
  void streamWithPendingWorkIsRetainedUntilItIsDone() throws Exception {
    List<Communicator> ranks = backend.newCommunicators(0, 1);
    try (Buffer mine = backend.newBuffer(0, DataType.INT32, 2);
        Buffer others = backend.newBuffer(1, DataType.INT32, 2);
        Stream stream = backend.newStream(1);
        Stream reader = backend.newStream(0)) {
      String[] forgotten = new String[1];
      CompletionStage<Void> done = reduceLater(ranks.getFirst(), mine, forgotten);
      for (int i = 0; i < 5; i++) {
        collect();
      }
      assertEquals(0, reports(forgotten[0]));
      others.copyFromAsync(MemorySegment.ofArray(new int[] {10, 20}), stream);
      Thread other =
          Thread.ofPlatform()
              .start(() -> ranks.getLast().allReduce(others, others, ReduceOp.SUM, stream));
      other.join();
      done.toCompletableFuture().get(30, TimeUnit.SECONDS);
      int[] sum = new int[2];
      stream.synchronize();
      mine.copyTo(MemorySegment.ofArray(sum), reader);
      assertArrayEquals(new int[] {11, 22}, sum);
      collectUntil(() -> reports(forgotten[0]) > 0);
    } finally {
      ranks.forEach(Communicator::close);
    }
  }

  @Test
  void streamClosedTooEarlyIsRetainedForItsCommunicator() throws Exception {
    List<Communicator> ranks = backend.newCommunicators(0, 1);
    Buffer mine = backend.newBuffer(0, DataType.INT32, 1);
    Event done = backend.newEvent(0);
    String thread = closeTooEarly(ranks.getFirst(), mine, done);
    try (done;
        Buffer others = backend.newBuffer(1, DataType.INT32, 1);
        Stream stream = backend.newStream(1)) {
      Thread other =
          Thread.ofPlatform()
              .start(() -> ranks.getLast().allReduce(others, others, ReduceOp.SUM, stream));
      other.join();
      stream.synchronize();
      // Nothing is pending any more, and no call has queried the stream.
      done.synchronize(Duration.ofSeconds(30));
    }
    mine.close();
    collect();
    assertTrue(runs(thread));
    ranks.forEach(Communicator::close);
    collectUntil(() -> !runs(thread));
  }

  /** Closes a stream with a pending collective; returns the name of its thread. */
  private static String closeTooEarly(Communicator rank, Buffer data, Event done) {
    Stream stream = rank.newStream();
    rank.allReduce(data, data, ReduceOp.SUM, stream);
    stream.record(done);
    assertThrows(IllegalStateException.class, stream::close);
    return "nccl4j-stream-" + stream.number() + "-device-0";
  }

  /** Enqueues a collective that waits for the other rank, on a stream without references. */
  private static CompletionStage<Void> reduceLater(
      Communicator rank, Buffer data, String[] description) {
    Stream stream = rank.newStream();
    description[0] = ForgottenOwners.describe(stream);
    data.copyFromAsync(MemorySegment.ofArray(new int[] {1, 2}), stream);
    rank.allReduce(data, data, ReduceOp.SUM, stream);
    return stream.completion();
  }
}
