package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Ranks of a failed communicator continue without the rank that caused the failure. */
class ShrinkAfterFailureTest {
  private static final ReferenceOptions OPTIONS = ReferenceOptions.defaults();
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));

  @Test
  void survivorsOfAMismatchContinue() {
    Ranks.run(
        3,
        OPTIONS,
        CONFIG,
        (comm, stream) -> {
          assertFails(comm, stream, comm.rank() == 2 ? 5 : 4);
          continueWithoutRank2(comm);
        });
  }

  @Test
  void survivorsOfATimeoutContinue() {
    CountDownLatch failed = new CountDownLatch(2);
    Ranks.run(
        3,
        OPTIONS,
        CONFIG,
        (comm, stream) -> {
          if (comm.rank() == 2) {
            // If it closed its communicator before, that would end the waits of the others.
            assertTrue(failed.await(20, TimeUnit.SECONDS));
          } else {
            Ranks.setTimeout(comm, Duration.ofMillis(500));
            assertFails(comm, stream, 4);
            failed.countDown();
          }
          continueWithoutRank2(comm);
        });
  }

  private static void assertFails(Communicator comm, Stream stream, int count) {
    Buffer value = comm.newBuffer(DataType.INT32, count);
    value.fill((byte) 0, stream);
    comm.allReduce(value, value, ReduceOp.SUM, stream);
    assertThrows(NcclException.class, () -> stream.synchronize(Duration.ofSeconds(20)));
    value.close();
  }

  private static void continueWithoutRank2(Communicator comm) {
    if (comm.rank() == 2) {
      return;
    }
    NcclException refused =
        assertThrows(
            NcclException.class, () -> comm.shrink(Set.of(2), ShrinkMode.FINISH_FIRST, CONFIG));
    assertEquals("shrink", refused.function(), "failed operations cannot be finished");
    try (Communicator rest = comm.shrink(Set.of(2), ShrinkMode.ABORT_FIRST, CONFIG);
        Stream stream = rest.newStream();
        Buffer value = rest.newBuffer(DataType.INT32, 1)) {
      value.copyFromAsync(MemorySegment.ofArray(new int[] {comm.rank() + 1}), stream);
      rest.allReduce(value, value, ReduceOp.SUM, stream);
      int[] sum = new int[1];
      value.copyTo(MemorySegment.ofArray(sum), stream);
      assertEquals(3, sum[0]);
    }
  }
}
