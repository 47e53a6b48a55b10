package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeviceType;
import io.nccl4j.Group;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/**
 * The ranks of this process, each with a communicator and a stream. They are indexed from 0, also
 * if they are not the first ranks of the communicator.
 */
final class Ranks implements AutoCloseable {
  /** Below this many bytes, a second thread does not pay off. */
  private static final long PARALLEL_BYTES = 1 << 18;

  /** Without {@code -T}, for the communicators; on NCCL, a stream has a default of its own. */
  static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(10);

  private final Communicator[] comms;
  private final Stream[] streams;
  private final int perThread;
  private final int first;
  private final int world;

  /** Creates unconnected ranks; call {@link #connect} next. */
  Ranks(Settings settings) {
    this.comms = new Communicator[settings.ranks()];
    this.streams = new Stream[settings.ranks()];
    this.perThread = settings.ranksPerThread();
    this.first = settings.firstRank();
    this.world = settings.worldRanks();
  }

  /** Creates communicators and streams, in one group or in one group per thread. */
  void connect(Settings settings, EnqueueThreads enqueueThreads) {
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withTimeout(
                settings.flags().timeout().isZero() ? DEFAULT_TIMEOUT : settings.flags().timeout());
    UniqueId id = id(settings);
    if (settings.flags().parallelInit == 1) {
      enqueueThreads.all(
          thread -> {
            connect(settings, config, id, first(thread), first(thread + 1));
            return thread;
          });
    } else {
      connect(settings, config, id, 0, comms.length);
    }
    for (int rank = 0; rank < comms.length; rank++) {
      streams[rank] = comms[rank].newStream();
    }
  }

  private static UniqueId id(Settings settings) {
    Backend backend = settings.backend();
    if (settings.job().alone()) {
      return backend.newUniqueId();
    }
    try (Rendezvous rendezvous = settings.job().rendezvous()) {
      return rendezvous.exchange(backend);
    }
  }

  private void connect(
      Settings settings, CommunicatorConfig config, UniqueId id, int from, int to) {
    Group.run(
        () -> {
          for (int rank = from; rank < to; rank++) {
            comms[rank] =
                settings
                    .backend()
                    .newCommunicator(
                        id, world, first + rank, config.withDevice(settings.deviceOf(rank)));
          }
        });
  }

  /** Returns the number of ranks in this process. */
  int count() {
    return comms.length;
  }

  /** Returns the number of ranks in all processes. */
  int world() {
    return world;
  }

  /** Returns the global number of one of this process's ranks. */
  int number(int rank) {
    return first + rank;
  }

  Communicator comm(int rank) {
    return comms[rank];
  }

  Stream stream(int rank) {
    return streams[rank];
  }

  /** Returns the index of the first rank of a thread. */
  int first(int thread) {
    return thread * perThread;
  }

  /** Waits for a rank's stream; a time-out of zero means the library's default. */
  void complete(int rank, Duration timeout) {
    Duration limit = timeout.isZero() ? Stream.DEFAULT_TIMEOUT : timeout;
    if (comms[rank].backend().deviceType() == DeviceType.CUDA) {
      poll(streams[rank], limit);
      return;
    }
    try {
      streams[rank].synchronize(limit);
    } catch (NcclTimeoutException e) {
      if (timeout.isZero()) {
        throw e;
      }
      // The stuck operation started its wait later than this one. Its exception names the rank.
      streams[rank].synchronize(timeout);
      throw e;
    }
  }

  /**
   * Waits without sleeping, as nccl-tests does: a sleeping wait would notice the end late, which
   * would be timed. Not for the reference backend, whose ranks need the processors.
   */
  @SuppressWarnings("ThreadPriorityCheck") // As nccl-tests: NCCL's own threads may need it.
  private static void poll(Stream stream, Duration limit) {
    long start = System.nanoTime();
    while (!stream.isComplete()) {
      if (System.nanoTime() - start > limit.toNanos()) {
        throw new NcclTimeoutException("cudaStreamQuery", limit, "the work on " + stream);
      }
      Thread.yield();
    }
  }

  /** Runs work for each rank, in parallel if it moves enough bytes. */
  void each(long bytes, IntConsumer work) {
    IntStream ranks = IntStream.range(0, comms.length);
    (bytes < PARALLEL_BYTES ? ranks : ranks.parallel()).forEach(work);
  }

  /** Aborts all communicators, which releases all waiting threads. */
  void abort() {
    for (Communicator comm : comms) {
      if (comm != null) {
        comm.abort();
      }
    }
  }

  @Override
  public void close() {
    for (Stream stream : streams) {
      if (stream != null) {
        stream.close();
      }
    }
    // Closing a rank waits for the others, so all are closed concurrently.
    List<FutureTask<Void>> closing = new ArrayList<>();
    for (Communicator comm : comms) {
      if (comm != null) {
        FutureTask<Void> task = new FutureTask<>(comm::close, null);
        closing.add(task);
        Thread.ofPlatform().daemon().name("perf-close").start(task);
      }
    }
    closing.forEach(Ranks::join);
  }

  private static void join(FutureTask<Void> closing) {
    try {
      closing.get();
    } catch (ExecutionException e) {
      throw (RuntimeException) e.getCause();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
