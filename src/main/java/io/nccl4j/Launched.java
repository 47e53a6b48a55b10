package io.nccl4j;

import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.LaunchListener;
import io.nccl4j.spi.PendingLaunch;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Calls that are launched together, with their numbers and their records in the flight recorder. A
 * captured call has neither: it runs later, and is counted by each launch of its graph.
 */
final class Launched implements PendingLaunch {
  private final List<Call> calls;
  // The sequence number and the record of each call, or 0.
  private final long[] numbers;
  private final long[] records;
  // Whether they are the calls of a graph.
  private final boolean captured;
  // Whether a listener sees a call.
  private boolean heard;
  // Created if the stream does not complete the calls soon; only the thread that reports uses it.
  private LaunchDeadline deadline;

  private Launched(List<Call> calls, long[] numbers, long[] records, boolean captured) {
    this.calls = calls;
    this.numbers = numbers;
    this.records = records;
    this.captured = captured;
  }

  /** Counts and records calls that are about to be launched. */
  static Launched count(List<Call> calls) {
    return count(calls, false);
  }

  /** Counts and records the calls of a graph that is about to be launched as a unit. */
  static Launched countOfGraph(List<Call> calls) {
    return count(calls, true);
  }

  private static Launched count(List<Call> calls, boolean captured) {
    Launched launched =
        new Launched(calls, new long[calls.size()], new long[calls.size()], captured);
    for (int i = 0; i < launched.numbers.length; i++) {
      Call call = calls.get(i);
      if (!call.stream().captured()) {
        CommunicatorCore communicator = call.communicator();
        launched.numbers[i] = communicator.numbers().count(call.operation(), call.peer(), captured);
        launched.records[i] = record(call, launched.numbers[i]);
      }
    }
    return launched;
  }

  private static long record(Call call, long number) {
    OperationLog log = call.communicator().log();
    if (log == null || call.operation() == null) {
      return 0;
    }
    boolean collective = call.collective();
    DataType type = (call.send() == null ? call.recv() : call.send()).type();
    return log.add(
        FlightRecorder.kind(call.operation(), type, call.operator()),
        call.peer(),
        collective ? number : call.communicator().numbers().collectives(),
        collective ? 0 : number,
        call.count(),
        call.stream().number());
  }

  @Override
  public List<Call> calls() {
    return calls;
  }

  /** Returns the sequence number of each call, or 0. */
  long[] numbers() {
    return numbers;
  }

  /** Undoes the counts and records of calls that were rejected. */
  void reject() {
    for (int i = 0; i < numbers.length; i++) {
      Call call = calls.get(i);
      if (!call.stream().captured()) {
        call.communicator().numbers().uncount(call.operation(), call.peer(), captured);
        call.communicator().removeRecord(records[i]);
      }
    }
  }

  /**
   * Announces the collectives to the listeners of their communicators, which may refuse them.
   *
   * @param graph whether a graph launches the calls
   */
  void announce(boolean graph) {
    for (int i = 0; i < numbers.length; i++) {
      LaunchListener listener = listener(i);
      if (listener != null) {
        heard = true;
        listener.launching(calls.get(i), numbers[i], graph, !graph && isAlone(calls.get(i)));
      }
    }
    for (int i = 0; heard && i < numbers.length; i++) {
      LaunchListener listener = listener(i);
      if (listener != null) {
        listener.awaitOthers();
      }
    }
  }

  /** Tells the listeners how the launch ended. */
  void conclude(LaunchListener.Outcome outcome) {
    for (int i = 0; heard && i < numbers.length; i++) {
      LaunchListener listener = listener(i);
      if (listener != null) {
        listener.launched(calls.get(i), numbers[i], outcome);
      }
    }
  }

  /** Records that the launch has returned. */
  void returned() {
    for (int i = 0; i < numbers.length; i++) {
      if (numbers[i] != 0 && calls.get(i).collective()) {
        calls.get(i).communicator().numbers().launched(numbers[i]);
      }
    }
  }

  /** Returns the listener that sees a call, or null; calls that are only captured have none. */
  private LaunchListener listener(int i) {
    Call call = calls.get(i);
    LaunchListener listener = call.communicator().listener();
    return listener == null || numbers[i] == 0 || !call.collective() ? null : listener;
  }

  private boolean isAlone(Call call) {
    return calls.stream().filter(other -> other.communicator() == call.communicator()).count() == 1;
  }

  /** Returns the number of the first collective, or 0. */
  long firstCollective() {
    for (int i = 0; i < numbers.length; i++) {
      if (calls.get(i).collective()) {
        return numbers[i];
      }
    }
    return 0;
  }

  /** Follows the launched calls on each stream that is not captured. */
  void follow() {
    Stream first = calls.getFirst().stream();
    if (calls.size() == 1 || calls.stream().allMatch(call -> call.stream() == first)) {
      if (!first.captured()) {
        first.driver().follow(this);
      }
      return;
    }
    Map<Stream, List<Integer>> perStream = new LinkedHashMap<>();
    for (int i = 0; i < numbers.length; i++) {
      perStream.computeIfAbsent(calls.get(i).stream(), s -> new ArrayList<>()).add(i);
    }
    perStream.forEach(
        (stream, indices) -> {
          if (!stream.captured()) {
            stream.driver().follow(part(indices));
          }
        });
  }

  private Launched part(List<Integer> indices) {
    return new Launched(
        indices.stream().map(calls::get).toList(),
        indices.stream().mapToLong(i -> numbers[i]).toArray(),
        indices.stream().mapToLong(i -> records[i]).toArray(),
        captured);
  }

  @Override
  public void completed(long nanos) {
    for (int i = 0; i < records.length; i++) {
      Call call = calls.get(i);
      call.communicator().numbers().completed(call.operation(), numbers[i]);
      call.communicator().completeRecord(records[i], nanos);
    }
  }

  @Override
  public void failed() {
    List<CommunicatorCore> failed =
        calls.stream()
            .map(Call::communicator)
            .distinct()
            .filter(communicator -> !communicator.isAborted())
            .toList();
    // The reporting thread must not wait until the records are written.
    Background.startOrRun(
        "nccl4j-flight",
        () -> failed.forEach(communicator -> communicator.failures().dumpAfterFailure()));
  }

  @Override
  public void pending(long nanos) {
    if (deadline == null) {
      deadline = new LaunchDeadline(calls, numbers[0]);
    }
    deadline.pending(nanos);
  }
}
