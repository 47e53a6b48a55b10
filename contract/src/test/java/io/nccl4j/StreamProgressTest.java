package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests a progress whose threads record work in another order than the stream's. It needs a backend
 * whose memory can be allocated while a collective waits, and access to the package.
 */
class StreamProgressTest {
  private Backend backend;
  private List<Communicator> ranks;
  private Stream stream;

  @BeforeEach
  void enqueueBlockedCollective() {
    backend = Backend.reference(2);
    ranks = backend.newCommunicators(0, 1);
    stream = backend.newStream(0);
    Buffer waiting = backend.newBuffer(0, DataType.INT32, 1);
    ranks.getFirst().allReduce(waiting, waiting, ReduceOp.SUM, stream);
  }

  @AfterEach
  void end() {
    ranks.forEach(Communicator::abort);
    stream.close();
    backend.close();
  }

  @Test
  void useRecordedLateDoesNotHideLaterUse() {
    StreamProgress progress = stream.progress();
    Buffer buffer = backend.newBuffer(0, DataType.INT32, 1);
    long early = progress.advance();
    long late = progress.take();
    progress.markCollective(late);
    buffer.usedBy(progress, late);
    buffer.usedBy(progress, early);
    progress.markPassed(early);
    assertThrows(IllegalStateException.class, buffer::close, "the later use is pending");
  }

  @Test
  void failedReleaseAffectsNeitherWaitsNorOtherMemory() {
    List<String> released = new ArrayList<>();
    try (Arena arena = Arena.ofShared()) {
      Buffer bad = foreign(arena, () -> refuse("bad"));
      Buffer good = foreign(arena, () -> released.add("good"));
      for (Buffer each : List.of(bad, good)) {
        ranks.getFirst().allReduce(each, each, ReduceOp.SUM, stream);
        assertThrows(IllegalStateException.class, each::close, "it is pending");
      }
      ranks.forEach(Communicator::abort);
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      stream.synchronize();
      assertEquals(List.of("good"), released);
    }
  }

  private static Buffer foreign(Arena arena, Runnable release) {
    return Buffer.ofHostSegment(
        arena.allocate(DataType.INT32.bytes(), DataType.INT32.bytes()),
        DataType.INT32,
        1,
        Buffer.ANY_DEVICE,
        release);
  }

  private static void refuse(String what) {
    throw new IllegalStateException(what);
  }

  @Test
  void collectiveAfterEventIsNotAwaited() {
    try (Stream between = backend.newStream(0);
        Stream last = backend.newStream(0);
        Event complete = backend.newEvent(0);
        Event blocked = backend.newEvent(0)) {
      between.record(complete);
      last.waitFor(complete);
      stream.record(blocked);
      between.waitFor(blocked);
      assertTrue(between.progress().awaitsCollective());
      assertFalse(last.progress().awaitsCollective(), "the recording was before the wait");
      between.record(complete);
      last.waitFor(complete);
      assertTrue(last.progress().awaitsCollective());
      ranks.forEach(Communicator::abort);
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      stream.synchronize();
      assertFalse(last.progress().awaitsCollective());
      assertThrows(NcclException.class, () -> last.synchronize());
    }
  }

  @Test
  void collectiveAfterEventOfItsStreamIsNotAwaited() {
    Buffer value = backend.newBuffer(0, DataType.INT32, 1);
    try (Stream first = backend.newStream(0);
        Stream second = backend.newStream(0);
        Event event = backend.newEvent(0)) {
      first.record(event);
      ranks.getFirst().allReduce(value, value, ReduceOp.SUM, first);
      second.waitFor(event);
      assertFalse(second.progress().awaitsCollective());
      first.record(event);
      second.waitFor(event);
      assertTrue(second.progress().awaitsCollective());
      ranks.forEach(Communicator::abort);
    }
  }

  @Test
  void passedWaitIsNotConfusedWithLaterOneOfAnotherStream() {
    try (Stream between = backend.newStream(0);
        Stream last = backend.newStream(0);
        Event first = backend.newEvent(0);
        Event second = backend.newEvent(0)) {
      stream.record(first);
      between.waitFor(first);
      between.record(second);
      last.waitFor(second);
      stream.record(first);
      between.waitFor(first);
      StreamProgress progress = last.progress();
      long waited = progress.advance();
      assertTrue(progress.awaitsCollective());
      progress.take();
      progress.markPassed(waited);
      assertFalse(progress.awaitsCollective(), "only work before the last value waited");
      ranks.forEach(Communicator::abort);
    }
  }

  @Test
  void collectiveRecordedLateDoesNotHideLaterOne() {
    StreamProgress progress = stream.progress();
    long early = progress.advance();
    long late = progress.take();
    progress.markCollective(late);
    progress.markCollective(early);
    progress.markPassed(early);
    assertFalse(progress.passedCollectives());
    ranks.forEach(Communicator::abort);
    assertThrows(CommunicatorAbortedException.class, stream::synchronize);
    assertTrue(progress.passedCollectives());
  }
}
