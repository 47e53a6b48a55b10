package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.function.Executable;

/** Two ranks of the NCCL backend, driven by one thread, with a stream each. */
final class Pair implements AutoCloseable {
  private static final int TIMEOUT_SECONDS = 20;

  private final Backend backend = Backend.nccl();
  private final List<Communicator> ranks;
  private final List<Stream> streams;

  Pair(CommunicatorConfig config) {
    this(config, config);
  }

  /** Creates two ranks that differ in their configurations. */
  Pair(CommunicatorConfig first, CommunicatorConfig second) {
    ranks = Creation.retry(NcclException.class, () -> together(first, second));
    streams = ranks.stream().map(Communicator::newStream).toList();
  }

  private List<Communicator> together(CommunicatorConfig first, CommunicatorConfig second) {
    UniqueId id = backend.newUniqueId();
    List<Communicator> made = new ArrayList<>();
    Group.run(
        () -> {
          made.add(backend.newCommunicator(id, 2, 0, first));
          made.add(backend.newCommunicator(id, 2, 1, second));
        });
    return made;
  }

  /**
   * Checks that a call times out in NCCL. The call is repeated if a busy machine does not reach
   * NCCL before the timeout.
   */
  static void assertTimesOut(String function, Executable call) {
    long before = StandIn.calls(function);
    long start = System.nanoTime();
    do {
      assertTrue(
          System.nanoTime() - start < TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS),
          () -> "it timed out before it called " + function);
      NcclTimeoutException thrown = assertThrows(NcclTimeoutException.class, call);
      assertEquals(function, thrown.function());
    } while (StandIn.calls(function) == before);
  }

  Backend backend() {
    return backend;
  }

  Communicator rank(int rank) {
    return ranks.get(rank);
  }

  /** Returns the NCCL view of a rank. */
  NcclCommunicator nccl(int rank) {
    return NcclCommunicator.of(ranks.get(rank));
  }

  Stream stream(int rank) {
    return streams.get(rank);
  }

  /** Allocates a zeroed buffer of each rank that windows can use. */
  List<Buffer> registrable(DataType type, long count) {
    List<Buffer> buffers = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      Buffer buffer = NcclBackend.of(backend).newRegistrableBuffer(rank, type, count);
      buffer.fill((byte) 0, streams.get(rank));
      buffers.add(buffer);
    }
    streams.forEach(Stream::synchronize);
    return buffers;
  }

  /** Registers one buffer of each rank as a window. */
  List<Window> register(List<Buffer> buffers, WindowOption... options) {
    List<CompletionStage<Window>> stages = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      stages.add(nccl(rank).registerWindowAsync(buffers.get(rank), options));
    }
    return stages.stream().map(Pair::await).toList();
  }

  /** Runs a call in a new thread and waits for it: outside a group, a thread drives one rank. */
  static void onOwnThread(Runnable call) {
    start(call).join();
  }

  /** Runs a call in a new thread. */
  static CompletableFuture<Void> start(Runnable call) {
    return CompletableFuture.runAsync(call, task -> Thread.ofPlatform().daemon().start(task));
  }

  /** Starts to close a communicator in a new thread; returns once it accepts no calls. */
  static CompletableFuture<Void> startClosing(Communicator comm) {
    CompletableFuture<Void> closing = start(comm::close);
    while (comm.isOpen()) {
      Thread.onSpinWait();
    }
    return closing;
  }

  /** Waits for a stage; rethrows its failure. */
  static <T> T await(CompletionStage<T> stage) {
    try {
      return stage.toCompletableFuture().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw (RuntimeException) e.getCause();
    } catch (InterruptedException | TimeoutException e) {
      throw new AssertionError(e);
    }
  }

  /** Waits until a non-blocking communicator has completed its calls, also those that timed out. */
  static void awaitIdle(Communicator comm) {
    long start = System.nanoTime();
    while (true) {
      try {
        NcclCommunicator.of(comm).callNative("nothing", pointer -> nccl_h.ncclSuccess());
        return;
      } catch (NcclTimeoutException inProgress) {
        if (System.nanoTime() - start > TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS)) {
          throw inProgress;
        }
      }
    }
  }

  void upload(int rank, Buffer buffer, int... values) {
    buffer.slice(0, values.length).copyFromAsync(MemorySegment.ofArray(values), streams.get(rank));
  }

  int[] download(int rank, Buffer buffer) {
    int[] values = new int[(int) buffer.count()];
    buffer.copyTo(MemorySegment.ofArray(values), streams.get(rank));
    return values;
  }

  void abort() {
    Communicator.abortAll(ranks);
  }

  @Override
  public void close() {
    ranks.forEach(Communicator::close);
    streams.forEach(Stream::close);
    backend.close();
  }
}
