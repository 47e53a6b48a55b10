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
 * The ranks of this process: a communicator and a stream each. They are counted from 0 on here,
 * also where they are not the first ones of the world.
 */
final class Ranks implements AutoCloseable {
  /** Below this, waking a second thread takes longer than it helps. */
  private static final long WORTH_A_THREAD = 1 << 18;

  private static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(10);

  private final Communicator[] comms;
  private final Stream[] streams;
  private final int perThread;
  private final int first;
  private final int world;

  /** Makes the arrays; {@link #connect} fills them. */
  Ranks(Settings settings) {
    this.comms = new Communicator[settings.ranks()];
    this.streams = new Stream[settings.ranks()];
    this.perThread = settings.ranksPerThread();
    this.first = settings.firstRank();
    this.world = settings.worldRanks();
  }

  /** Makes communicators and streams, in one group or in one for each thread. */
  void connect(Settings settings, EnqueueThreads drivers) {
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withTimeout(settings.timeout().isZero() ? DEFAULT_TIMEOUT : settings.timeout());
    UniqueId id = id(settings);
    if (settings.parallelInit()) {
      drivers.all(
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

  /** Returns how many ranks are in this process. */
  int count() {
    return comms.length;
  }

  /** Returns how many ranks are in all processes together. */
  int world() {
    return world;
  }

  /** Returns the rank in the world of one of this process's. */
  int number(int rank) {
    return first + rank;
  }

  Communicator comm(int rank) {
    return comms[rank];
  }

  Stream stream(int rank) {
    return streams[rank];
  }

  /** Returns the first rank that a thread drives. */
  int first(int thread) {
    return thread * perThread;
  }

  /** Waits for a rank's stream, for so long at most, or as long as it takes where that is zero. */
  void complete(int rank, Duration timeout) {
    Duration longest = timeout.isZero() ? Stream.DEFAULT_TIMEOUT : timeout;
    if (comms[rank].backend().deviceType() == DeviceType.CUDA) {
      poll(streams[rank], longest);
      return;
    }
    try {
      streams[rank].synchronize(longest);
    } catch (NcclTimeoutException late) {
      if (timeout.isZero()) {
        throw late;
      }
      // The operation that hangs has begun to wait later than this has, and will say for whom.
      streams[rank].synchronize(timeout);
      throw late;
    }
  }

  /**
   * Waits as nccl-tests does, without a sleep: a wait that sleeps notices the end late, and that
   * would be timed. The reference backend needs the processor for the ranks themselves.
   */
  @SuppressWarnings("ThreadPriorityCheck") // As nccl-tests: NCCL's own threads may need it.
  private static void poll(Stream stream, Duration longest) {
    long start = System.nanoTime();
    while (!stream.isComplete()) {
      if (System.nanoTime() - start > longest.toNanos()) {
        throw new NcclTimeoutException("cudaStreamQuery", longest, "the work on " + stream);
      }
      Thread.yield();
    }
  }

  /** Does something for each rank, on several processors if it moves enough bytes. */
  void each(long bytes, IntConsumer work) {
    IntStream ranks = IntStream.range(0, comms.length);
    (bytes < WORTH_A_THREAD ? ranks : ranks.parallel()).forEach(work);
  }

  /** Releases whoever waits for a rank, for good. */
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
    // Closing a rank waits for the others, so all are closed at the same time.
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
