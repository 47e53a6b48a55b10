package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.IdleStrategy;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Waits for a stream whose worker throws an {@link Error}. */
class WorkerErrorsTest {
  private static final Duration SOON = Duration.ofSeconds(20);
  private static final CommunicatorConfig LATE =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));

  private static void fail(Stream stream) {
    ReferenceStream driver = (ReferenceStream) Contract.get().driver(stream);
    driver.append(
        idleStrategy -> {
          throw new OutOfMemoryError("injected");
        });
  }

  @Test
  void errorOfATaskIsNamedByTheNextWait() {
    try (Backend backend = ReferenceBackend.open(1);
        Stream stream = backend.newStream(0)) {
      fail(stream);
      NcclException thrown = assertThrows(NcclException.class, () -> stream.synchronize(SOON));
      assertTrue(thrown.getMessage().contains("OutOfMemoryError: injected"), thrown::toString);
    }
  }

  @Test
  void workerRunsTheTasksBehindAnError() {
    try (Backend backend = ReferenceBackend.open(1);
        Stream stream = backend.newStream(0);
        Buffer data = backend.newBuffer(0, DataType.INT32, 1)) {
      fail(stream);
      data.fill((byte) 1, stream);
      assertThrows(NcclException.class, () -> stream.synchronize(SOON));
      assertEquals(0x01010101, DataType.INT32.getLong(data.segment(), 0));
      data.fill((byte) 2, stream);
      stream.synchronize(SOON);
      assertEquals(0x02020202, DataType.INT32.getLong(data.segment(), 0));
    }
  }

  @Test
  void eventBehindAnErrorReportsIt() {
    try (Backend backend = ReferenceBackend.open(1);
        Stream stream = backend.newStream(0);
        Event event = backend.newEvent(0)) {
      fail(stream);
      stream.record(event);
      NcclException thrown = assertThrows(NcclException.class, () -> event.synchronize(SOON));
      assertTrue(thrown.getMessage().contains("OutOfMemoryError: injected"), thrown::toString);
      assertThrows(NcclException.class, () -> stream.synchronize(SOON));
    }
  }

  @Test
  void stageBehindAnErrorCompletesWithIt() {
    try (Backend backend = ReferenceBackend.open(1);
        Stream stream = backend.newStream(0)) {
      fail(stream);
      CompletableFuture<Void> stage = stream.completion().toCompletableFuture();
      ExecutionException thrown =
          assertThrows(
              ExecutionException.class, () -> stage.get(SOON.toSeconds(), TimeUnit.SECONDS));
      NcclException cause = assertInstanceOf(NcclException.class, thrown.getCause());
      assertTrue(cause.getMessage().contains("OutOfMemoryError: injected"), cause::toString);
      assertThrows(NcclException.class, () -> stream.synchronize(SOON));
    }
  }

  /** The error occurs before the operation has begun, when no other rank knows of it. */
  @Test
  void errorInAnOperationIsReportedToTheOtherRanks() {
    CountDownLatch over = new CountDownLatch(2);
    Ranks.run(
        2,
        ReferenceBackend.open(2),
        LATE,
        (comm, stream) -> {
          Buffer data = comm.newBuffer(DataType.INT32, 1);
          if (comm.rank() == 1) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            NcclRemoteException thrown =
                assertThrows(NcclRemoteException.class, () -> stream.synchronize(SOON));
            assertTrue(
                thrown.getMessage().contains("rank 0 failed: ")
                    && thrown.getMessage().contains("StackOverflowError: injected"),
                thrown::toString);
          } else {
            HostedRank hostedRank =
                ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank();
            Throwable failure = runAndFail(hostedRank, data);
            assertInstanceOf(NcclException.class, failure);
            assertTrue(failure.getMessage().contains("StackOverflowError: injected"));
            assertTrue(hostedRank.awaitIdle(SOON), "its turn has ended");
            assertEquals(failure.getMessage(), comm.asyncError().orElseThrow().getMessage());
          }
          over.countDown();
          assertTrue(over.await(20, TimeUnit.SECONDS));
        });
  }

  /** Runs an operation as a worker does, with an error in it. */
  private static Throwable runAndFail(HostedRank hostedRank, Buffer data) {
    BufferMemory memory = new BufferMemory(data.segment(), data.type(), data.count());
    Call call = Call.of(Operation.ALL_REDUCE, memory, memory, 1, ReductionOp.standard(0), -1);
    RankExecution execution = new RankExecution(hostedRank, List.of(call));
    execution.takeTurn();
    IdleStrategy idleStrategy = new IdleStrategy(Thread.currentThread());
    Runnable begun =
        () -> {
          throw new StackOverflowError("injected");
        };
    try {
      return RankExecution.run(List.of(execution), begun, idleStrategy);
    } catch (StackOverflowError escaped) {
      return escaped;
    }
  }
}
