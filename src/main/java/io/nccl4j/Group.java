package io.nccl4j;

import io.nccl4j.spi.BackendDriver;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.RandomAccess;

/**
 * Several operations launched as one, so that they progress together: sends and receives that need
 * each other, one thread that drives several communicators, or the making of several communicators
 * from one thread.
 *
 * <p>Within {@link #run}, this thread's operations are checked at once but kept until the outermost
 * lambda has returned, and then checked again for what was closed since. If a lambda throws, its
 * operations are forgotten, nothing having been launched, and the communicators that it began to
 * make are aborted. C: {@code ncclGroupStart}, {@code ncclGroupEnd}.
 *
 * <p>The operations of a group have no order: NCCL may carry out several of them at the same time,
 * also those of one stream. So an operation must not write memory that another one of the group
 * reads or writes, whatever their communicators, ranks and streams; that is refused when the group
 * ends. Only memory that this rank's part of an operation uses counts, an operation may be in
 * place, and several may read the same memory. A rank's receive from itself of the memory that it
 * sends to itself does nothing. Sends to one peer still meet its receives in the order of the
 * calls, and collectives of one communicator those of its other ranks. Operations that depend on
 * each other belong into two groups, or outside any group on one stream. What puts from other ranks
 * write is not known here and not checked.
 *
 * <p>Only operations are kept. Copies and events are enqueued at once, before them. What waits (a
 * completion and a copy to the host too) is refused on a stream that the group has operations for.
 *
 * <p>A group holds either operations or the making of communicators, not both. In it, each rank of
 * one communicator has streams of its own: a stream begins the second rank's part when it has done
 * with the first one's, which waits for the second.
 *
 * @see <a href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/groups.html">Group
 *     calls</a>
 */
public final class Group {
  private static final int MOST_SLOTS = 4096;
  private static final ThreadLocal<Group> OF_THREAD = new ThreadLocal<>();

  /** A communicator and a stream that orders calls of it. */
  private record Way(CommunicatorCore communicator, Stream stream) {}

  /** The calls, without a copy. */
  private final class Calls extends AbstractList<CheckedCall>
      implements RandomAccess, ThreadScope.KeptCalls {
    @Override
    public CheckedCall get(int index) {
      return slots[Objects.checkIndex(index, count)];
    }

    @Override
    public int size() {
      return count;
    }

    @Override
    public boolean anyOf(Stream stream) {
      return depth > 0 && stream().anyMatch(kept -> kept.stream() == stream);
    }
  }

  // A thread has one group for all its life. The slots keep the calls of the last time: where the
  // same call comes again, which it mostly does, nothing need be made or written.
  private final Calls calls = new Calls();
  private final GroupMemory memory = new GroupMemory();
  private CheckedCall[] slots = new CheckedCall[16];
  private int count;
  private int depth;
  private boolean launching;

  // Whose calls they are: the first one's, of which there is often no other.
  private CommunicatorCore firstCommunicator;
  private Stream firstStream;
  private final List<Way> otherWays = new ArrayList<>();

  private final List<CommunicatorCore> unconnected = new ArrayList<>();
  // For each unconnected one the communicator that it is split from, or null.
  private final List<CommunicatorCore> parents = new ArrayList<>();

  private Group() {}

  /**
   * Runs the calls of a group, then launches them together. Groups may be nested; the outermost one
   * launches. C: {@code ncclGroupStart}, {@code ncclGroupEnd}.
   *
   * @param body enqueues operations, or makes communicators, from this thread; what it throws comes
   *     out
   * @throws NcclException if launching failed; none of the group's operations is guaranteed to have
   *     been launched
   * @throws IllegalStateException if operations and the making of communicators meet in one group,
   *     if a communicator is split twice in it, or if something it uses was closed before its end
   * @throws IllegalArgumentException if one of its operations writes what another one uses, if two
   *     ranks of one communicator have calls on one stream in it, or if blocking and non-blocking
   *     communicators of NCCL meet in it; nothing of it is launched then
   */
  public static void run(Runnable body) {
    Objects.requireNonNull(body, "body");
    Group group = ofThread();
    boolean outermost = group.depth == 0;
    group.runBody(body);
    if (outermost) {
      try {
        group.launch();
      } finally {
        group.clear();
      }
    }
  }

  private static Group ofThread() {
    Group group = OF_THREAD.get();
    if (group == null || group.launching) {
      group = new Group();
      OF_THREAD.set(group);
    }
    return group;
  }

  private void runBody(Runnable body) {
    int callsBefore = count;
    int unconnectedBefore = unconnected.size();
    boolean returned = false;
    if (depth == 0) {
      ThreadScope.beginGroup(calls);
    }
    depth++;
    try {
      body.run();
      returned = true;
    } finally {
      depth--;
      if (depth == 0) {
        ThreadScope.endGroup();
      }
      if (!returned) {
        forget(callsBefore, unconnectedBefore);
      }
    }
  }

  /** {@return whether this thread is within {@link #run}, so that its operations are kept} */
  public static boolean running() {
    return current() != null;
  }

  /** Returns this thread's open group, or null. */
  static Group current() {
    Group group = OF_THREAD.get();
    return group == null || group.depth == 0 ? null : group;
  }

  /** Keeps a checked operation. */
  void add(
      Operation operation,
      CommunicatorCore communicator,
      Buffer send,
      Buffer recv,
      long elements,
      ReduceOp op,
      int peer,
      Stream stream) {
    if (count < slots.length
        && slots[count] instanceof CheckedOperation known
        && known.is(operation, communicator, send, recv, elements, op, peer, stream)) {
      add(known);
    } else {
      add(new CheckedOperation(operation, communicator, send, recv, elements, op, peer, stream));
    }
  }

  void add(CheckedCall call) {
    if (!unconnected.isEmpty()) {
      throw mixed();
    }
    if (call.stream() != firstStream || call.communicator() != firstCommunicator) {
      addWay(call);
    }
    if (count == slots.length) {
      slots = Arrays.copyOf(slots, 2 * count);
    }
    if (slots[count] != call) {
      slots[count] = call;
    }
    count++;
  }

  private void addWay(CheckedCall call) {
    if (count == 0) {
      firstCommunicator = call.communicator();
      firstStream = call.stream();
      return;
    }
    Way way = new Way(call.communicator(), call.stream());
    if (!otherWays.contains(way)) {
      otherWays.add(way);
    }
  }

  void add(CommunicatorCore communicator, CommunicatorCore parent) {
    if (count > 0) {
      throw mixed();
    }
    if (parent != null && parents.contains(parent)) {
      throw new IllegalStateException(
          "a group holds one split, shrink or grow of a communicator; end the group before the next of "
              + parent);
    }
    unconnected.add(communicator);
    parents.add(parent);
  }

  private static IllegalStateException mixed() {
    return new IllegalStateException(
        "a group holds either operations or the making of communicators; end one group before the other begins");
  }

  /** Throws, and aborts what was begun, if a parent has ended between the call and here. */
  private void checkParents() {
    boolean open = false;
    try {
      parents.stream().filter(Objects::nonNull).forEach(parent -> parent.checkDivisible());
      open = true;
    } finally {
      if (!open) {
        unconnected.forEach(CommunicatorCore::abort);
      }
    }
  }

  private void forget(int keptCalls, int keptUnconnected) {
    if (count > keptCalls) {
      count = keptCalls;
      otherWays.clear();
      calls.stream()
          .filter(kept -> kept.stream() != firstStream || kept.communicator() != firstCommunicator)
          .forEach(this::addWay);
    }
    List<CommunicatorCore> dropped = unconnected.subList(keptUnconnected, unconnected.size());
    dropped.forEach(CommunicatorCore::abort);
    dropped.clear();
    parents.subList(keptUnconnected, parents.size()).clear();
  }

  private void clear() {
    count = 0;
    otherWays.clear();
    unconnected.clear();
    parents.clear();
    if (slots.length > MOST_SLOTS) {
      slots = Arrays.copyOf(slots, MOST_SLOTS);
    }
  }

  /**
   * Returns the checked operations of a lambda, which are not launched.
   *
   * @throws IllegalStateException if this thread has a group open, if the lambda makes
   *     communicators or closes what its operations use, or if a stream is being captured
   * @throws IllegalArgumentException if one of the operations writes what another one uses
   */
  static List<CheckedCall> record(Runnable body) {
    Objects.requireNonNull(body, "body");
    Group group = ofThread();
    if (group.depth > 0) {
      throw new IllegalStateException("what a group launches cannot be recorded in it");
    }
    try {
      group.runBody(body);
      if (!group.unconnected.isEmpty()) {
        group.forget(group.count, 0);
        throw mixed();
      }
      for (CheckedCall call : group.calls) {
        checkStillOpen(call);
        call.stream().checkNotCaptured("recording");
      }
      group.checkMemory();
      return List.copyOf(group.calls);
    } finally {
      group.clear();
    }
  }

  /** Throws if anything was closed between the call and the end of its group. */
  private static void checkStillOpen(CheckedCall call) {
    call.stream().checkOpen();
    call.communicator().checkConnected();
    call.checkOperandsOpen();
  }

  private void launch() {
    launching = true;
    try {
      if (!unconnected.isEmpty()) {
        checkParents();
        CommunicatorCore.connectTogether(List.copyOf(unconnected));
      } else if (count > 0) {
        launchCalls();
      }
    } finally {
      launching = false;
    }
  }

  private void launchCalls() {
    for (int i = 0; i < count; i++) {
      checkStillOpen(slots[i]);
    }
    if (!otherWays.isEmpty()) {
      checkRanksApart();
    }
    checkMemory();
    boolean captured = prepare(firstCommunicator, firstStream);
    // By index: an iterator would be an object.
    for (int i = 0; i < otherWays.size(); i++) {
      captured |= prepare(otherWays.get(i).communicator(), otherWays.get(i).stream());
    }
    if (captured) {
      launchCaptured();
    } else {
      launchAndCount(calls, otherWays.isEmpty() ? firstCommunicator : null, true);
    }
  }

  /**
   * Throws if two ranks of one communicator share a stream: what the first one enqueues waits for
   * the second one's, which the stream begins after it.
   */
  private void checkRanksApart() {
    List<Way> earlier = new ArrayList<>(List.of(new Way(firstCommunicator, firstStream)));
    for (Way way : otherWays) {
      for (Way other : earlier) {
        if (way.stream == other.stream
            && way.communicator != other.communicator
            && way.communicator
                .driver()
                .communicatorKey()
                .equals(other.communicator.driver().communicatorKey())) {
          throw new IllegalArgumentException(
              "the group has calls of "
                  + other.communicator
                  + " and of "
                  + way.communicator
                  + ", two ranks that need each other, on one stream, where the first would wait for the second indefinitely; each rank needs a stream of its own: "
                  + way.stream);
        }
      }
      earlier.add(way);
    }
  }

  /** Throws if two calls share memory that one of them writes. */
  private void checkMemory() {
    if (count > 1) {
      memory.check(calls);
    }
  }

  /** Notes on a stream which communicator calls on it; returns whether it is being captured. */
  private static boolean prepare(CommunicatorCore communicator, Stream stream) {
    communicator.use(stream);
    if (stream.captured()) {
      stream.checkCapturedHere();
    }
    return stream.captured();
  }

  private void launchCaptured() {
    Map<Stream, List<CheckedCall>> captured = new LinkedHashMap<>();
    List<CheckedCall> launched = new ArrayList<>();
    for (CheckedCall call : calls) {
      Stream stream = call.stream();
      if (stream.captured()) {
        captured.computeIfAbsent(stream, s -> new ArrayList<>()).add(call);
      }
      if (!stream.captured() || stream.capturesNatively()) {
        launched.add(call);
      }
    }
    launchAndCount(launched, null, true);
    captured.forEach(Capture::keep);
  }

  /**
   * Launches checked calls together, as far as they are of one backend. Unless all of them were
   * refused, it counts them.
   *
   * @param only the communicator of all calls, or null if there may be several
   * @param carried whether the streams carry the calls until they have passed them
   */
  static void launchAndCount(List<CheckedCall> calls, CommunicatorCore only, boolean carried) {
    boolean refused = false;
    boolean traced = FlightRecorderEvents.on();
    try {
      if (traced) {
        LaunchTrace.record(calls, () -> launchTogether(calls, only));
      } else {
        launchTogether(calls, only);
      }
    } catch (Throwable failure) {
      refused = CheckedCall.refuses(failure) && CheckedCall.ofOneBackend(calls);
      describe(failure, calls, refused, traced);
      throw failure;
    } finally {
      // First what keeps the memory of the buffers until the operations have ended.
      if (!refused && carried) {
        trackOperands(calls);
      }
      if (!refused && !traced) {
        count(calls);
      }
    }
  }

  /**
   * Says of a failure to launch calls which ones it concerns, if they are of one communicator.
   *
   * @param counted whether the calls have been counted
   */
  private static void describe(
      Throwable failure, List<CheckedCall> calls, boolean refused, boolean counted) {
    CommunicatorCore only = calls.getFirst().communicator();
    if (calls.stream().anyMatch(call -> call.communicator() != only)) {
      return;
    }
    long collectives =
        calls.stream()
            .filter(call -> call instanceof CheckedOperation one && !one.operation().pointToPoint())
            .count();
    long first = only.numbers().collectives() + 1 - (counted ? collectives : 0);
    boolean single = calls.size() == 1 && calls.getFirst() instanceof CheckedOperation;
    only.describe(
        failure,
        single ? ((CheckedOperation) calls.getFirst()).operation() : null,
        refused || collectives == 0 ? 0 : first);
  }

  /** Counts calls that run now; what is captured counts when its graph is launched. */
  private static void count(List<CheckedCall> calls) {
    // By index: an iterator would be an object.
    for (int i = 0; i < calls.size(); i++) {
      if (calls.get(i) instanceof CheckedOperation one && !one.stream().captured()) {
        one.takeNumber();
      }
    }
  }

  private static void trackOperands(List<CheckedCall> calls) {
    for (int i = 0; i < calls.size(); i++) {
      CheckedCall call = calls.get(i);
      if (!call.stream().captured()) {
        call.trackOperands();
      }
    }
  }

  /** Does what {@link #launchAndCount} promises, without counting. */
  private static void launchTogether(List<CheckedCall> calls, CommunicatorCore only) {
    if (only != null) {
      only.backend().launchGroup(calls, only.driver());
      return;
    }
    if (CheckedCall.ofOneBackend(calls)) {
      calls.getFirst().communicator().backend().launchGroup(calls, null);
      return;
    }
    Map<BackendDriver, List<CheckedCall>> perBackend = new LinkedHashMap<>();
    for (CheckedCall call : calls) {
      perBackend.computeIfAbsent(call.communicator().backend(), b -> new ArrayList<>()).add(call);
    }
    perBackend.forEach((backend, together) -> backend.launchGroup(together, null));
  }
}
