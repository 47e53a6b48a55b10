package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.stream.EventRecord;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Streams of the reference backend: order, several streams per communicator, ends of waits. */
class ReferenceStreamTest {
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(1));
  private static final CommunicatorConfig LATE =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));
  private static final ReferenceOptions OPTIONS = ReferenceOptions.defaults();

  @Test
  void oneCommunicatorOnTwoStreamsKeepsTheOrderOfCalls() {
    Ranks.run(
        3,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          try (Stream other = comm.newStream()) {
            Buffer data = comm.newBuffer(DataType.INT32, 1);
            DataType.INT32.setLong(data.segment(), 0, 1);
            for (int i = 0; i < 10; i++) {
              comm.allReduce(data, data, ReduceOp.SUM, i % 2 == 0 ? stream : other);
            }
            stream.synchronize();
            other.synchronize();
            assertEquals((long) Math.pow(3, 10), DataType.INT32.getLong(data.segment(), 0));
          }
        });
  }

  @Test
  void interruptEndsAWaitAndStaysPending() {
    CountDownLatch checked = new CountDownLatch(1);
    Ranks.run(
        2,
        OPTIONS,
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.FLOAT32, 6);
          if (comm.rank() == 0) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            Thread.currentThread().interrupt();
            assertThrows(CancellationException.class, stream::synchronize);
            assertTrue(Thread.interrupted(), "the interrupt is kept");
            assertFalse(stream.isComplete(), "the operation continues");
            checked.countDown();
            Thread.currentThread().interrupt();
            comm.send(data, 1, stream);
          } else {
            // Until then the operation of rank 0 must not complete.
            assertTrue(checked.await(20, TimeUnit.SECONDS));
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            comm.recv(data, 0, stream);
          }
          assertTrue(comm.rank() == 1 || Thread.interrupted());
          stream.synchronize();
        });
  }

  @Test
  void closeOfAStuckStreamTimesOut() {
    Ranks.run(
        1,
        OPTIONS,
        SOON,
        (comm, stream) -> {
          Stream stuck = comm.newStream();
          CountDownLatch ended = new CountDownLatch(1);
          EventRecord never = new EventRecord();
          Buffer data = comm.newBuffer(DataType.FLOAT32, 6);
          comm.allReduce(data, data, ReduceOp.SUM, stuck);
          stuck.synchronize();
          ((ReferenceStream) Contract.get().driver(stuck)).follow(never);
          data.fill((byte) 0, stuck);
          NcclTimeoutException thrown = assertThrows(NcclTimeoutException.class, stuck::close);
          assertTrue(thrown.getMessage().contains("1.0 s: 2 pending"), thrown::toString);
          stuck.close();
          never.reach(null);
          comm.allReduce(data, data, ReduceOp.SUM, stream);
          stream.completion().thenRun(ended::countDown);
          assertTrue(ended.await(20, TimeUnit.SECONDS));
        });
  }
}
