package io.nccl4j.tools.doctor;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs a small all-reduce of two ranks on the reference backend, which needs only Java. */
final class ReferenceProbe {
  static final int RANKS = 2;
  static final int COUNT = 1_000;

  private ReferenceProbe() {}

  /**
   * Runs the all-reduce.
   *
   * @return why it failed; empty if it was correct
   */
  static Optional<String> run(Duration timeout) throws InterruptedException {
    long deadline = System.nanoTime() + timeout.toNanos();
    List<FutureTask<Optional<String>>> ranks = new ArrayList<>();
    try (Backend backend = Backend.reference(RANKS)) {
      UniqueId id = backend.newUniqueId();
      for (int rank = 0; rank < RANKS; rank++) {
        int number = rank;
        FutureTask<Optional<String>> task =
            new FutureTask<>(() -> allReduce(backend, id, number, timeout));
        ranks.add(task);
        Thread.ofPlatform().daemon().name("doctor-rank-" + rank).start(task);
      }
      for (FutureTask<Optional<String>> rank : ranks) {
        Optional<String> failure =
            rank.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
        if (failure.isPresent()) {
          return failure;
        }
      }
      return Optional.empty();
    } catch (ExecutionException e) {
      return Optional.of(e.getCause().toString());
    } catch (TimeoutException e) {
      return Optional.of("it did not finish within " + timeout.toSeconds() + " s");
    }
  }

  private static Optional<String> allReduce(
      Backend backend, UniqueId id, int rank, Duration timeout) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout);
    try (Arena arena = Arena.ofConfined();
        Communicator comm = backend.newCommunicator(id, RANKS, rank, config);
        Stream stream = comm.newStream();
        Buffer values = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      MemorySegment host = arena.allocate(ValueLayout.JAVA_FLOAT, COUNT);
      for (int i = 0; i < COUNT; i++) {
        host.setAtIndex(ValueLayout.JAVA_FLOAT, i, rank + i);
      }
      values.copyFromAsync(host, stream);
      comm.allReduce(values, values, ReduceOp.SUM, stream);
      values.copyTo(host, stream);
      stream.synchronize();
      for (int i = 0; i < COUNT; i++) {
        float sum = host.getAtIndex(ValueLayout.JAVA_FLOAT, i);
        if (sum != 2f * i + 1) {
          return Optional.of("element " + i + " of rank " + rank + " is " + sum);
        }
      }
      return Optional.empty();
    }
  }
}
