package io.nccl4j.verification;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Compares calls of ranks on the stand-in, which itself would hang or fail the device. */
@OnStandIn
@Timeout(120)
class CallCheckTest {
  private static final int RANKS = 2;
  private static final Duration TIMEOUT = Duration.ofSeconds(20);

  private final Backend backend = Backend.nccl();

  /** What the second rank calls instead of an all-reduce of 4 floats. */
  enum Other {
    OPERATION("broadcast(count 4, FLOAT32, root 1)") {
      @Override
      void call(Communicator comm, Buffer buffer, Stream stream) {
        comm.broadcast(buffer, 1, stream);
      }
    },
    COUNT("allReduce(count 3, FLOAT32, sum)") {
      @Override
      void call(Communicator comm, Buffer buffer, Stream stream) {
        Buffer less = buffer.slice(0, 3);
        comm.allReduce(less, less, ReduceOp.SUM, stream);
      }
    },
    TYPE("allReduce(count 4, INT32, sum)") {
      @Override
      void call(Communicator comm, Buffer buffer, Stream stream) {
        try (Buffer integers = comm.newBuffer(DataType.INT32, 4)) {
          comm.allReduce(integers, integers, ReduceOp.SUM, stream);
        }
      }
    },
    OPERATOR("allReduce(count 4, FLOAT32, max)") {
      @Override
      void call(Communicator comm, Buffer buffer, Stream stream) {
        comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
      }
    },
    CREATED_OPERATOR("allReduce(count 4, FLOAT32, mulsum)") {
      @Override
      void call(Communicator comm, Buffer buffer, Stream stream) {
        try (ReduceOp.PreMulSum half = comm.newPreMulSum(DataType.FLOAT32, 0.5)) {
          comm.allReduce(buffer, buffer, half, stream);
        }
      }
    };

    private final String text;

    Other(String text) {
      this.text = text;
    }

    abstract void call(Communicator comm, Buffer buffer, Stream stream);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    backend.close();
  }

  @ParameterizedTest
  @EnumSource
  void differentCallsAreRefusedOnEachRank(Other other) {
    backend.runRanks(
        RANKS,
        comm -> {
          try (Stream stream = comm.newStream();
              Buffer buffer = comm.newBuffer(DataType.FLOAT32, 4)) {
            buffer.copyFromAsync(new float[] {1, 2, 3, 4}, stream);
            try (CallCheck _ = CallCheck.of(comm, TIMEOUT)) {
              comm.barrier(stream);
              NcclInvalidUsageException refused =
                  assertThrows(
                      NcclInvalidUsageException.class,
                      () -> {
                        if (comm.rank() == 1) {
                          other.call(comm, buffer, stream);
                        } else {
                          comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
                        }
                      });
              String first = "allReduce(count 4, FLOAT32, sum)";
              String message = refused.getMessage();
              assertTrue(
                  message.contains("collective number 2 differs between ranks")
                      && message.contains("rank 0 called " + first)
                      && message.contains("rank 1 called " + other.text),
                  message);
            }
            // Nothing was launched, and the numbers of the ranks are the same.
            comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
            float[] sums = new float[4];
            buffer.copyTo(sums, stream);
            assertEquals(4, sums[1]);
          }
        });
  }

  @Test
  void rankThatDoesNotCallIsNamed() {
    CompletableFuture<Void> failed = new CompletableFuture<>();
    backend.runRanks(
        RANKS + 1,
        comm -> {
          try (Stream stream = comm.newStream();
              Buffer buffer = comm.newBuffer(DataType.FLOAT32, 4);
              CallCheck _ = CallCheck.of(comm, Duration.ofSeconds(2))) {
            if (comm.rank() == 1) {
              failed.join();
              return;
            }
            Class<? extends Exception> expected = NcclTimeoutException.class;
            NcclTimeoutException late =
                (NcclTimeoutException)
                    assertThrows(
                        expected, () -> comm.allReduce(buffer, buffer, ReduceOp.SUM, stream));
            assertEquals(Set.of(1), late.missingRanks());
            assertTrue(
                late.getMessage().contains("rank 1")
                    && late.getMessage().contains("did not call allReduce(count 4, FLOAT32, sum)"),
                late::getMessage);
            failed.complete(null);
          }
        });
  }

  @Test
  void sameCallsAreLaunched() {
    backend.runRanks(
        RANKS,
        comm -> {
          try (Stream stream = comm.newStream();
              Buffer all = comm.newBuffer(DataType.FLOAT32, 4L * RANKS);
              Buffer one = comm.newBuffer(DataType.FLOAT32, 4);
              CallCheck _ = CallCheck.of(comm, TIMEOUT)) {
            comm.broadcast(one, 1, stream);
            comm.allGather(one, all, stream);
            comm.reduceScatter(all, one, ReduceOp.AVG, stream);
            comm.reduce(one, one, ReduceOp.MIN, 1, stream);
            comm.gather(one, comm.rank() == 0 ? all : null, 0, stream);
            comm.scatter(comm.rank() == 1 ? all : null, one, 1, stream);
            Group.run(
                () -> {
                  comm.allReduce(one, one, ReduceOp.SUM, stream);
                  comm.broadcast(all, 0, stream);
                  if (comm.rank() == 0) {
                    comm.send(all.slice(0, 0), 1, stream);
                  } else {
                    comm.recv(all.slice(0, 0), 0, stream);
                  }
                });
            try (Graph graph =
                Graph.capture(stream, () -> comm.allReduce(one, one, ReduceOp.SUM, stream))) {
              graph.launch(stream);
              graph.launch(stream);
              stream.synchronize();
            }
            IllegalStateException second =
                assertThrows(IllegalStateException.class, () -> CallCheck.of(comm, TIMEOUT));
            assertTrue(second.getMessage().contains("already"), second::getMessage);
          }
        });
  }

  @Test
  void threadThatDrivesAllRanksIsNotBlocked() {
    int[] devices = IntStream.range(0, RANKS).toArray();
    try (CommunicatorList ranks = backend.newCommunicators(devices)) {
      List<CompletableFuture<CallCheck>> checks = new ArrayList<>();
      for (Communicator rank : ranks) {
        checks.add(
            CompletableFuture.supplyAsync(
                () -> CallCheck.of(rank, TIMEOUT), task -> Thread.ofPlatform().start(task)));
      }
      List<CallCheck> made = checks.stream().map(CompletableFuture::join).toList();
      List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
      List<Buffer> buffers = ranks.stream().map(rank -> rank.newBuffer(DataType.INT32, 4)).toList();
      Group.run(
          () -> {
            for (int rank = 0; rank < RANKS; rank++) {
              Buffer buffer = buffers.get(rank);
              ranks.get(rank).allReduce(buffer, buffer, ReduceOp.SUM, streams.get(rank));
            }
          });
      streams.forEach(Stream::synchronize);
      made.forEach(CallCheck::close);
      buffers.forEach(Buffer::close);
      streams.forEach(Stream::close);
    }
  }
}
