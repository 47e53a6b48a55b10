package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/**
 * Plain writes of the host that operations see, and results that plain reads of the host see, after
 * each way to wait; see {@code docs/reference/memory.md}.
 */
abstract class MemoryVisibilityContract {
  private static final int ROUNDS = 50;
  private static final int COUNT = 1000;

  abstract BackendUnderTest underTest();

  /** Waits for the operation, then runs the check, in whatever thread that way to wait runs it. */
  private interface Wait {
    void thenCheck(Rank rank, Runnable check) throws Exception;
  }

  private void checkVisible(Wait wait) {
    int size = Math.min(2, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), size)) {
      // Allocate before any rank communicates: pinning may wait for the kernels of all ranks.
      Queue<Buffer> allocated = new ConcurrentLinkedQueue<>();
      for (int i = 0; i < size; i++) {
        allocated.add(ranks.backend().newPinnedBuffer(DataType.INT32, COUNT));
      }
      ranks.each(
          rank -> {
            try (Buffer pinned = allocated.remove()) {
              MemorySegment memory = pinned.segment();
              for (int round = 0; round < ROUNDS; round++) {
                int sum = 0;
                for (int r = 0; r < size; r++) {
                  sum += value(r, round);
                }
                int expected = sum;
                for (int i = 0; i < COUNT; i++) {
                  memory.setAtIndex(ValueLayout.JAVA_INT, i, value(rank.rank(), round));
                }
                rank.comm().allReduce(pinned, pinned, ReduceOp.SUM, rank.stream());
                wait.thenCheck(
                    rank,
                    () -> {
                      for (int i = 0; i < COUNT; i++) {
                        assertEquals(expected, memory.getAtIndex(ValueLayout.JAVA_INT, i));
                      }
                    });
              }
            }
          });
    }
  }

  private static int value(int rank, int round) {
    return 1 + rank + 10 * round;
  }

  @Test
  void resultIsVisibleAfterSynchronize() {
    checkVisible(
        (rank, check) -> {
          rank.stream().synchronize();
          check.run();
        });
  }

  @Test
  void resultIsVisibleOnceStreamIsComplete() {
    checkVisible(
        (rank, check) -> {
          long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
          while (!rank.stream().isComplete()) {
            assertTrue(System.nanoTime() < end, "the stream is not complete after 30 s");
            Thread.sleep(0, 1000);
          }
          check.run();
        });
  }

  @Test
  void resultIsVisibleAfterEvent() {
    checkVisible(
        (rank, check) -> {
          try (Event event = rank.comm().newEvent()) {
            rank.stream().record(event);
            event.synchronize(Duration.ofSeconds(30));
            check.run();
          }
        });
  }

  @Test
  void resultIsVisibleThroughAnotherStream() {
    checkVisible(
        (rank, check) -> {
          try (Event event = rank.comm().newEvent();
              Stream other = rank.comm().newStream()) {
            rank.stream().record(event);
            other.waitFor(event);
            other.synchronize();
            check.run();
          }
        });
  }

  @Test
  void resultIsVisibleInDependentStage() {
    checkVisible(
        (rank, check) ->
            rank.stream()
                .completion()
                .thenRun(check)
                .toCompletableFuture()
                .get(30, TimeUnit.SECONDS));
  }
}
