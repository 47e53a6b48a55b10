package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.fixtures.libraries.OnOlderStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.VersionReport;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests a call that connects on NCCL before 2.28.7, which cannot end it: the call is reported, and
 * its communicator is freed when it returns.
 */
@OnOlderStandIn
class OlderBlockedCallTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(500));

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();

  @Test
  void overdueFirstCollective_isReportedOnceAndFreedLater() throws Exception {
    StandIn.connect(true);
    try (Backend backend = Backend.nccl();
        LogLines log = new LogLines(NcclCommunicator.class)) {
      List<Communicator> ranks =
          Creation.retry(
              NcclException.class, () -> backend.newCommunicators(new int[] {0, 1}, CONFIG));
      Communicator comm = ranks.getFirst();
      String nccl = VersionReport.load().nccl();
      try (Stream stream = comm.newStream();
          Stream otherStream = ranks.getLast().newStream();
          Buffer value = comm.newBuffer(DataType.INT32, 1);
          Buffer other = ranks.getLast().newBuffer(DataType.INT32, 1)) {
        Thread caller =
            Thread.ofPlatform()
                .daemon()
                .start(() -> comm.allReduce(value, value, ReduceOp.SUM, stream));
        await(() -> log.lines().size() > 1);
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1200));
        assertEquals(2, log.lines().size(), log.lines()::toString);
        assertTrue(log.lines().getFirst().endsWith(" s: the peers of " + comm));
        assertEquals(
            comm
                + ": ncclAllReduce has been inside NCCL for 0.5 s; NCCL "
                + nccl
                + " cannot end such a call; use NCCL 2.28.7 or later, or a non-blocking"
                + " communicator",
            log.lines().getLast());
        IllegalStateException refused =
            assertThrows(
                IllegalStateException.class,
                () -> comm.allReduce(value, value, ReduceOp.SUM, stream));
        assertEquals(
            comm
                + " is in use by another thread, in ncclAllReduce; one thread at a time may use a"
                + " communicator",
            refused.getMessage());
        comm.abort();
        assertEquals(
            comm
                + ": a thread is inside ncclAllReduce, which NCCL "
                + nccl
                + " cannot end; it frees the communicator when it returns",
            log.lines().getLast());
        assertTrue(caller.isAlive());
        assertEquals(2, communicators.live());
        ranks.getLast().allReduce(other, other, ReduceOp.SUM, otherStream);
        assertTrue(caller.join(Duration.ofSeconds(10)), "connected");
        await(() -> communicators.live() == 1);
        ranks.getLast().abort();
        assertThrows(CommunicatorAbortedException.class, stream::synchronize);
        assertThrows(CommunicatorAbortedException.class, otherStream::synchronize);
      }
    }
  }

  private static void await(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() - start < 10_000_000_000L, "the condition did not become true");
      LockSupport.parkNanos(1_000_000);
    }
  }
}
