package io.nccl4j;

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
  // Whether a rejection applies to all operations, so that none of them is counted.
  private final boolean together;
  private final List<CheckedOperation> calls = new ArrayList<>();
  private final List<CollectiveEvent> collectives = new ArrayList<>();
  // The launch of a graph, or null.
  private final GraphEvent graph;
  private long enqueuedAt;
  private long begunAt;
  private long finishedAt;
  private boolean finished;
  private boolean ended;

  private LaunchTrace(Stream stream, boolean together, GraphEvent graph) {
    this.stream = stream;
    this.together = together;
    this.graph = graph;
  }

  /** Launches and records one operation. */
  static void record(CheckedOperation call, Runnable launch) {
    LaunchTrace trace = new LaunchTrace(call.stream(), true, null);
    trace.add(call, 0);
    trace.record(launch);
  }

  /** Launches operations together and records them, with one trace per stream. */
  static void record(List<CheckedCall> calls, Runnable launch) {
    long group = GROUPS.incrementAndGet();
    boolean together = CheckedCall.ofOneBackend(calls);
    // Sorted, since streams may be locked during the launch and all threads need the same order.
    SortedMap<Stream, LaunchTrace> traces = new TreeMap<>(Comparator.comparingLong(Stream::number));
    for (CheckedCall call : calls) {
      if (call instanceof CheckedOperation one && !one.stream().captured()) {
        traces
            .computeIfAbsent(one.stream(), stream -> new LaunchTrace(stream, together, null))
            .add(one, group);
      }
    }
    Runnable nested = launch;
    for (LaunchTrace trace : traces.values()) {
      Runnable inner = nested;
      nested = () -> trace.record(inner);
    }
    nested.run();
  }

  /** Launches and records a graph. */
  static void record(GraphEvent graph, Stream stream, Runnable launch) {
    new LaunchTrace(stream, true, graph).record(launch);
  }

  private void add(CheckedOperation call, long group) {
    CommunicatorCore communicator = call.communicator();
    Operation operation = call.operation();
    DataType type = (call.send() == null ? call.recv() : call.send()).type();
    CollectiveEvent event = new CollectiveEvent();
    event.of = communicator;
    event.operation = operation.method();
    event.communicator = communicator.identity();
    event.sequence = call.takeNumber();
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
      if (together && CheckedCall.nothingLaunched(failure)) {
        returnNumbers();
      }
      ended(failure);
      throw failure;
    }
  }

  private void returnNumbers() {
    calls.forEach(CheckedOperation::returnNumber);
    collectives.forEach(event -> event.sequence = 0);
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
    for (CollectiveEvent event : collectives) {
      event.end();
      // An abort ends operations as if they had completed.
      event.wasAborted = event.of.isAborted();
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
    for (CollectiveEvent event : collectives) {
      event.queued = begunAt - enqueuedAt;
      event.error = error == null && event.wasAborted ? "aborted: " + event.of : error;
      event.commit();
    }
    if (graph != null) {
      graph.error = error;
      graph.commit();
    }
  }
}
