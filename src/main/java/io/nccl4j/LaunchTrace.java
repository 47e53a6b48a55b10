package io.nccl4j;

import io.nccl4j.internal.jfr.CollectiveEvent;
import io.nccl4j.internal.jfr.GraphEvent;
import io.nccl4j.internal.jfr.LaunchedEvents;
import io.nccl4j.spi.OperationTrace;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jfr.Event;

/** Records the operations that are launched together on one stream, or the launch of a graph. */
final class LaunchTrace implements OperationTrace {
  private static final AtomicLong GROUPS = new AtomicLong();
  private final Stream stream;
  // The calls that are launched together, on all streams; empty for a graph.
  private final List<Call> together;
  // The operations on this stream, and the event of each.
  private final List<Call> calls = new ArrayList<>();
  private final List<CollectiveEvent> collectives = new ArrayList<>();
  // The launch of a graph, or null.
  private final GraphEvent graph;
  private long enqueuedAt;
  private long begunAt;
  private long finishedAt;
  private boolean finished;
  private boolean ended;

  private LaunchTrace(Stream stream, List<Call> together, GraphEvent graph) {
    this.stream = stream;
    this.together = together;
    this.graph = graph;
  }

  /**
   * Launches calls together and records the operations that are not captured, with one trace per
   * stream.
   *
   * @param numbers the number of each call in its communicator
   */
  static void record(List<Call> calls, long[] numbers, Runnable launch) {
    long group = calls.size() == 1 ? 0 : GROUPS.incrementAndGet();
    // Sorted, since streams may be locked during the launch and all threads need the same order.
    SortedMap<Stream, LaunchTrace> traces = new TreeMap<>(Comparator.comparingLong(Stream::number));
    List<CollectiveEvent> events = new ArrayList<>();
    for (int i = 0; i < numbers.length; i++) {
      Call call = calls.get(i);
      if (call.operation() != null) {
        events.add(
            call.stream().captured()
                ? null
                : traces
                    .computeIfAbsent(call.stream(), stream -> new LaunchTrace(stream, calls, null))
                    .add(call, numbers[i], group));
      }
    }
    // Several backends launch one after the other, and only NCCL reports its calls.
    Runnable nested =
        CallLauncher.ofOneBackend(calls) ? () -> LaunchedEvents.during(events, launch) : launch;
    for (LaunchTrace trace : traces.values()) {
      Runnable inner = nested;
      nested = () -> trace.record(inner);
    }
    nested.run();
  }

  /** Launches and records a graph. */
  static void record(GraphEvent graph, Stream stream, Runnable launch) {
    new LaunchTrace(stream, List.of(), graph).record(launch);
  }

  private CollectiveEvent add(Call call, long number, long group) {
    CommunicatorCore communicator = call.communicator();
    Operation operation = call.operation();
    DataType type = (call.send() == null ? call.recv() : call.send()).type();
    CollectiveEvent event = new CollectiveEvent();
    event.operation = operation.method();
    event.communicator = communicator.identity();
    event.sequence = number;
    event.rank = communicator.rank();
    event.ranks = communicator.size();
    event.firstRank = communicator.firstRank();
    event.peer = call.peer();
    event.device = communicator.device();
    event.stream = stream.number();
    event.group = group;
    event.type = type.toString();
    event.reduction = call.op() == null ? null : call.op().toString();
    event.count = call.count();
    event.bytes = type.byteSize(call.count());
    collectives.add(event);
    calls.add(call);
    return event;
  }

  private void record(Runnable launch) {
    // After all events are created, since creating the first event of a type is slow.
    collectives.forEach(Event::begin);
    if (graph != null) {
      graph.begin();
    }
    enqueuedAt = System.nanoTime();
    begunAt = enqueuedAt;
    try {
      stream.driver().trace(this, launch);
    } catch (Throwable failure) {
      if (!together.isEmpty() && CallLauncher.rejectsAll(failure, together)) {
        collectives.forEach(event -> event.sequence = 0);
      }
      ended(failure);
      throw failure;
    }
  }

  @Override
  public synchronized void begun() {
    if (begunAt == enqueuedAt) {
      begunAt = System.nanoTime();
    }
  }

  @Override
  public synchronized void begunSince(long nanos) {
    if (nanos - enqueuedAt > 0) {
      begunAt = nanos;
    }
  }

  @Override
  public synchronized long finished() {
    for (int i = 0; i < collectives.size(); i++) {
      CollectiveEvent event = collectives.get(i);
      event.end();
      // An abort ends operations as if they had completed.
      event.wasAborted = calls.get(i).communicator().isAborted();
    }
    if (graph != null) {
      graph.end();
    }
    finished = true;
    finishedAt = System.nanoTime();
    return finishedAt;
  }

  @Override
  public synchronized void ended(Throwable failure) {
    if (ended) {
      return;
    }
    ended = true;
    if (!finished) {
      finished();
    }
    String error = failure == null ? null : failure.toString();
    for (int i = 0; i < collectives.size(); i++) {
      CollectiveEvent event = collectives.get(i);
      event.queued = begunAt - enqueuedAt;
      event.error =
          error == null && event.wasAborted ? "aborted: " + calls.get(i).communicator() : error;
      event.commit();
    }
    if (graph != null) {
      graph.error = error;
      graph.commit();
    }
  }
}
