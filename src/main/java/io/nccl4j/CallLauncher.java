package io.nccl4j;

import io.nccl4j.internal.jfr.FlightRecorderEvents;
import io.nccl4j.spi.BackendDriver;
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
    long[] numbers = takeNumbers(calls);
    boolean rejected = false;
    try {
      if (FlightRecorderEvents.on()) {
        LaunchTrace.record(calls, numbers, () -> launchPerBackend(calls));
      } else {
        launchPerBackend(calls);
      }
    } catch (Throwable failure) {
      rejected = rejectsAll(failure, calls);
      describe(failure, calls, rejected ? 0 : firstCollective(calls, numbers));
      throw failure;
    } finally {
      if (rejected) {
        returnNumbers(calls);
      } else {
        trackOperands(calls);
      }
    }
    follow(calls, numbers);
  }

  /** Sets a deadline for what was launched, on each stream. */
  private static void follow(List<Call> calls, long[] numbers) {
    Stream only = calls.getFirst().stream();
    if (calls.size() == 1) {
      followOn(only, calls, numbers[0]);
      return;
    }
    Map<Stream, List<Call>> perStream = new LinkedHashMap<>();
    for (Call call : calls) {
      perStream.computeIfAbsent(call.stream(), stream -> new ArrayList<>()).add(call);
    }
    perStream.forEach(
        (stream, launched) ->
            followOn(stream, launched, numbers[calls.indexOf(launched.getFirst())]));
  }

  private static void followOn(Stream stream, List<Call> launched, long number) {
    if (!stream.captured()) {
      stream.driver().follow(new LaunchDeadline(launched, number));
    }
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

  private static boolean ofOneBackend(List<Call> calls) {
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

  private static long firstCollective(List<Call> calls, long[] numbers) {
    for (int i = 0; i < numbers.length; i++) {
      if (calls.get(i).collective()) {
        return numbers[i];
      }
    }
    return 0;
  }

  /**
   * Counts the calls in their communicators. A captured call runs later, and is counted by each
   * launch of its graph.
   *
   * @return the number of each call, or 0
   */
  private static long[] takeNumbers(List<Call> calls) {
    long[] numbers = new long[calls.size()];
    for (int i = 0; i < numbers.length; i++) {
      Call call = calls.get(i);
      if (!call.stream().captured()) {
        numbers[i] = call.communicator().numbers().count(call.operation(), call.peer());
      }
    }
    return numbers;
  }

  private static void returnNumbers(List<Call> calls) {
    for (Call call : calls) {
      if (!call.stream().captured()) {
        call.communicator().numbers().uncount(call.operation(), call.peer());
      }
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
