package io.nccl4j.tools.perf;

import io.nccl4j.Event;
import java.util.Arrays;

/** Times each iteration by events in the ranks' streams; does nothing without {@code -I}. */
final class Stopwatch implements AutoCloseable {
  private final Event[][] events;
  private final boolean paired;
  private final int iterations;

  /** Creates the events: one per boundary, or two per iteration if an untimed barrier follows. */
  Stopwatch(Settings settings, Ranks ranks, int iterations) {
    this.paired = settings.flags().blocking() == Settings.Blocking.WAIT_AND_UNTIMED_BARRIER;
    this.iterations = iterations;
    this.events = settings.flags().perIteration() ? new Event[ranks.count()][] : null;
    for (int rank = 0; events != null && rank < ranks.count(); rank++) {
      events[rank] = new Event[paired ? 2 * iterations : iterations + 1];
      for (int i = 0; i < events[rank].length; i++) {
        events[rank][i] = ranks.comm(rank).newEvent();
      }
    }
  }

  /** Records the start of an iteration on all ranks of a thread. */
  void start(Ranks ranks, int thread, int iteration) {
    record(ranks, thread, paired ? 2 * iteration : iteration);
  }

  /** Records the end of an iteration that is not the start of the next. */
  void stop(Ranks ranks, int thread, int iteration) {
    record(ranks, thread, 2 * iteration + 1);
  }

  /** Records the end of the last iteration. */
  void finish(Ranks ranks, int thread) {
    if (!paired) {
      record(ranks, thread, iterations);
    }
  }

  private void record(Ranks ranks, int thread, int event) {
    if (events == null) {
      return;
    }
    for (int rank = ranks.first(thread); rank < ranks.first(thread + 1); rank++) {
      ranks.stream(rank).record(events[rank][event]);
    }
  }

  /** Returns each iteration's time per operation, of the slowest rank, in seconds; or null. */
  double[] iterations(int aggregated) {
    if (events == null) {
      return null;
    }
    double[] seconds = new double[iterations];
    for (Event[] ofRank : events) {
      for (int i = 0; i < iterations; i++) {
        Event start = ofRank[paired ? 2 * i : i];
        Event stop = ofRank[paired ? 2 * i + 1 : i + 1];
        double time = stop.elapsedSince(start).toNanos() / 1e9 / aggregated;
        seconds[i] = Math.max(seconds[i], time);
      }
    }
    return seconds;
  }

  @Override
  public void close() {
    if (events != null) {
      Arrays.stream(events).flatMap(Arrays::stream).forEach(Event::close);
    }
  }
}
