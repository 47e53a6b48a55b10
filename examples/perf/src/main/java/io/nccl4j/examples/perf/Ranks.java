package io.nccl4j.examples.perf;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/** All ranks, which are in this process: a communicator and a stream each. */
final class Ranks implements AutoCloseable {
  /** Below this, waking a second thread takes longer than it helps. */
  private static final long WORTH_A_THREAD = 1 << 18;

  private static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(10);

  private final Communicator[] comms;
  private final Stream[] streams;
  private final int perThread;

  /** Makes the arrays; {@link #connect} fills them. */
  Ranks(Settings settings) {
    this.comms = new Communicator[settings.ranks()];
    this.streams = new Stream[settings.ranks()];
    this.perThread = settings.ranksPerThread();
  }

  /** Makes communicators and streams, in one group or in one for each thread. */
  void connect(Settings settings, Drivers drivers) {
    Backend backend = settings.backend();
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withTimeout(settings.timeout().isZero() ? DEFAULT_TIMEOUT : settings.timeout());
    UniqueId id = backend.newUniqueId();
    if (settings.parallelInit()) {
      drivers.all(
          thread -> {
            connect(backend, config, id, first(thread), first(thread + 1));
            return thread;
          });
    } else {
      connect(backend, config, id, 0, comms.length);
    }
    for (int rank = 0; rank < comms.length; rank++) {
      streams[rank] = comms[rank].newStream();
    }
  }

  private void connect(Backend backend, CommunicatorConfig config, UniqueId id, int from, int to) {
    int devices = backend.devices().size();
    Group.run(
        () -> {
          for (int rank = from; rank < to; rank++) {
            comms[rank] =
                backend.communicator(id, comms.length, rank, config.withDevice(rank % devices));
          }
        });
  }

  int count() {
    return comms.length;
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
