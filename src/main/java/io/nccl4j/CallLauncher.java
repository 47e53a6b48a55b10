package io.nccl4j;

import io.nccl4j.internal.jfr.FlightRecorderEvents;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.LaunchListener;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Launches checked calls together: the only place that counts and records them, passes them to
 * their backends, and tracks the memory that they use.
 */
final class CallLauncher {
  private CallLauncher() {}

  /** Launches a checked call, or adds it to this thread's group or the stream's capture. */
  static void submit(Call call) {
    if (call.collective() && call.count() == 0) {
      return;
    }
    Group group = Group.current();
    if (group != null) {
      group.add(call);
    } else if (call.collective() && !call.stream().captured()) {
      OperationNumbers numbers = call.communicator().numbers();
      numbers.beginCall(call.operation());
      launch(List.of(call));
      // Not after a failure: the call waits for no other rank.
      numbers.endCall();
    } else {
      launch(List.of(call));
    }
  }

  /**
   * Launches calls, and adds those on captured streams to their captures.
   *
   * @param calls at least one
   */
  static void launch(List<Call> calls) {
    boolean captured = false;
    for (Call call : calls) {
      Stream stream = call.stream();
      call.communicator().use(stream);
      if (stream.captured()) {
        stream.checkCapturedHere();
        captured = true;
      }
    }
    if (captured) {
      launchCaptured(calls);
    } else {
      launchNow(calls);
    }
  }

  private static void launchCaptured(List<Call> calls) {
    Map<Stream, List<Call>> captured = new LinkedHashMap<>();
    List<Call> launched = new ArrayList<>();
    for (Call call : calls) {
      Stream stream = call.stream();
      if (stream.captured()) {
        captured.computeIfAbsent(stream, s -> new ArrayList<>()).add(call);
      }
      if (!stream.captured() || stream.capturesNatively()) {
        launched.add(call);
      }
    }
    if (!launched.isEmpty()) {
      launchNow(launched);
    }
    captured.forEach(Capture::keep);
  }

  /** Launches calls on streams that are not captured, or that CUDA captures. */
  static void launchNow(List<Call> calls) {
    Launched launched = Launched.count(calls);
    boolean rejected = true; // until NCCL or another library may have launched a call
    try {
      launched.announce(false);
      rejected = false;
      if (FlightRecorderEvents.on()) {
        LaunchTrace.record(calls, launched.numbers(), () -> launchPerBackend(calls));
      } else {
        launchPerBackend(calls);
      }
      launched.returned();
      launched.conclude(LaunchListener.Outcome.LAUNCHED);
    } catch (Throwable failure) {
      rejected = rejected || rejectsAll(failure, calls);
      launched.conclude(rejected ? LaunchListener.Outcome.REJECTED : LaunchListener.Outcome.FAILED);
      describe(failure, calls, rejected ? 0 : launched.firstCollective());
      if (!rejected) {
        launched.failed();
      }
      throw failure;
    } finally {
      if (rejected) {
        launched.reject();
      } else {
        trackOperands(calls);
      }
    }
    launched.follow();
  }

  /** Passes all calls of one backend to it together. */
  private static void launchPerBackend(List<Call> calls) {
    if (ofOneBackend(calls)) {
      calls.getFirst().communicator().backend().launch(calls);
      return;
    }
    Map<BackendDriver, List<Call>> perBackend = new LinkedHashMap<>();
    for (Call call : calls) {
      perBackend.computeIfAbsent(call.communicator().backend(), b -> new ArrayList<>()).add(call);
    }
    perBackend.forEach(BackendDriver::launch);
  }

  /** Returns whether all calls are of one backend. */
  static boolean ofOneBackend(List<Call> calls) {
    BackendDriver first = calls.getFirst().communicator().backend();
    for (Call call : calls) {
      if (call.communicator().backend() != first) {
        return false;
      }
    }
    return true;
  }

  /**
   * Returns whether a failure implies that none of the calls was launched: an argument or a state
   * was refused, by a driver before it called the library, or by the library itself.
   */
  static boolean rejectsAll(Throwable failure, List<Call> calls) {
    return ofOneBackend(calls)
        && (failure instanceof NcclInvalidUsageException
            || failure instanceof IllegalArgumentException
            || failure instanceof IllegalStateException);
  }

  /** Counts a failure, and adds the first collective to it if all calls are of one communicator. */
  private static void describe(Throwable failure, List<Call> calls, long firstCollective) {
    Statistics.failed(failure);
    CommunicatorCore only = calls.getFirst().communicator();
    if (failure instanceof NcclException known
        && calls.stream().allMatch(call -> call.communicator() == only)) {
      Operation operation = calls.size() == 1 ? calls.getFirst().operation() : null;
      known.initDetails(only.details().in(operation, firstCollective));
    }
  }

  private static void trackOperands(List<Call> calls) {
    for (Call call : calls) {
      if (!call.stream().captured()) {
        call.trackOperands(call.stream());
      }
    }
  }
}
