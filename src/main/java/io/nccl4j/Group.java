package io.nccl4j;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;

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
 * <p>Only operations are kept. Copies and events are enqueued at once, before them. What waits (a
 * completion and a copy to the host too) is refused on a stream that the group has operations for.
 *
 * <p>A group holds either operations or the making of communicators, not both.
 *
 * @see <a href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/groups.html">Group
 *     calls</a>
 */
public final class Group {
  private static final ThreadLocal<Group> CURRENT = new ThreadLocal<>();
  private static final AtomicInteger OPEN = new AtomicInteger();

  private final List<GroupCall> calls = new ArrayList<>();
  private final List<Communicator> unconnected = new ArrayList<>();
  // For each unconnected one the communicator that it is split from, or null.
  private final List<Communicator> parents = new ArrayList<>();

  private Group() {}

  /**
   * Runs the calls of a group, then launches them together. Groups may be nested; the outermost one
   * launches. C: {@code ncclGroupStart}, {@code ncclGroupEnd}.
   *
   * @param body enqueues operations, or makes communicators, from this thread; what it throws comes
   *     out
   * @throws NcclException if launching failed; no operation of the group may be taken for done
   * @throws IllegalStateException if operations and the making of communicators meet in one group,
   *     if a communicator is split twice in it, or if something it uses was closed before its end
   * @throws IllegalArgumentException if blocking and non-blocking communicators of NCCL meet in it
   */
  public static void run(Runnable body) {
    Objects.requireNonNull(body, "body");
    Group outer = CURRENT.get();
    Group group = outer == null ? new Group() : outer;
    if (outer == null) {
      CURRENT.set(group);
      OPEN.incrementAndGet();
    }
    int calls = group.calls.size();
    int unconnected = group.unconnected.size();
    boolean returned = false;
    try {
      body.run();
      returned = true;
    } finally {
      if (!returned) {
        group.forget(calls, unconnected);
      }
      if (outer == null) {
        OPEN.decrementAndGet();
        CURRENT.remove();
      }
    }
    if (outer == null) {
      group.launch();
    }
  }

  /**
   * Returns whether any thread has a group open. A thread with an open group of its own always sees
   * true.
   */
  static boolean anyOpen() {
    // A plain read: only the thread's own groups matter, and those it counted itself. This keeps
    // the thread-local off the hot path.
    return OPEN.getPlain() != 0;
  }

  /** Returns this thread's open group, or null. */
  static Group current() {
    return CURRENT.get();
  }

  /** Throws if this thread's group keeps calls of a stream, which another call means to follow. */
  static void checkNothingKeptFor(Stream stream, String call) {
    Group group = current();
    if (group != null && group.calls.stream().anyMatch(kept -> kept.stream() == stream)) {
      throw new IllegalStateException(
          call
              + " would come before the group's operations, which are launched when it ends; end the group first: "
              + stream);
    }
  }

  void add(GroupCall call) {
    if (!unconnected.isEmpty()) {
      throw mixed();
    }
    calls.add(call);
  }

  void add(Communicator communicator, Communicator parent) {
    if (!calls.isEmpty()) {
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
      parents.stream().filter(Objects::nonNull).forEach(Communicator::checkDivisible);
      open = true;
    } finally {
      if (!open) {
        unconnected.forEach(Communicator::abort);
      }
    }
  }

  private void forget(int keptCalls, int keptUnconnected) {
    calls.subList(keptCalls, calls.size()).clear();
    List<Communicator> dropped = unconnected.subList(keptUnconnected, unconnected.size());
    dropped.forEach(Communicator::abort);
    dropped.clear();
    parents.subList(keptUnconnected, parents.size()).clear();
  }

  /**
   * Returns the checked operations of a lambda, which are not launched.
   *
   * @throws IllegalStateException if this thread has a group open, if the lambda makes
   *     communicators or closes what its operations use, or if a stream is being captured
   */
  static List<GroupCall> record(Runnable body) {
    Objects.requireNonNull(body, "body");
    if (CURRENT.get() != null) {
      throw new IllegalStateException("what a group launches cannot be recorded in it");
    }
    Group group = new Group();
    boolean makesCommunicators;
    CURRENT.set(group);
    OPEN.incrementAndGet();
    try {
      body.run();
    } finally {
      OPEN.decrementAndGet();
      CURRENT.remove();
      makesCommunicators = !group.unconnected.isEmpty();
      group.forget(group.calls.size(), 0);
    }
    if (makesCommunicators) {
      throw mixed();
    }
    for (GroupCall call : group.calls) {
      checkStillOpen(call);
      call.stream().checkNotCaptured("recording");
    }
    return List.copyOf(group.calls);
  }

  /** Throws if anything was closed between the call and the end of its group. */
  private static void checkStillOpen(GroupCall call) {
    call.stream().checkOpen();
    call.communicator().checkConnected();
    call.checkOperandsOpen();
  }

  private void launch() {
    if (!unconnected.isEmpty()) {
      checkParents();
      Communicator.connectTogether(unconnected);
      return;
    }
    Map<Stream, List<GroupCall>> captured = new LinkedHashMap<>();
    for (GroupCall call : calls) {
      Stream stream = call.stream();
      checkStillOpen(call);
      stream.usedBy(call.communicator());
      if (stream.captured()) {
        stream.checkCapturedHere();
        captured.computeIfAbsent(stream, s -> new ArrayList<>()).add(call);
      }
    }
    launchAndCount(captured.isEmpty() ? calls : launchable());
    captured.forEach(Stream::keep);
  }

  /** Launches calls; unless all of them were refused, the streams now carry them. */
  private static void launchAndCount(List<GroupCall> launched) {
    boolean refused = false;
    try {
      launchPerBackend(launched);
    } catch (NcclInvalidUsageException | IllegalArgumentException | IllegalStateException e) {
      refused = ofOneBackend(launched);
      throw e;
    } finally {
      for (int i = 0; !refused && i < launched.size(); i++) {
        GroupCall call = launched.get(i);
        if (!call.stream().captured()) {
          call.stream().carries(call);
        }
      }
    }
  }

  /** Returns the calls that are not only recorded. */
  private List<GroupCall> launchable() {
    return calls.stream()
        .filter(call -> !call.stream().captured() || call.stream().capturesNatively())
        .toList();
  }

  /** Launches checked calls together, as far as they are of one backend. */
  static void launchPerBackend(List<GroupCall> calls) {
    if (ofOneBackend(calls)) {
      calls.getFirst().communicator().backend().launchGroup(calls);
      return;
    }
    Map<Backend, List<GroupCall>> perBackend = new LinkedHashMap<>();
    for (GroupCall call : calls) {
      perBackend.computeIfAbsent(call.communicator().backend(), b -> new ArrayList<>()).add(call);
    }
    perBackend.forEach(Backend::launchGroup);
  }

  private static boolean ofOneBackend(List<GroupCall> calls) {
    for (GroupCall call : calls) {
      if (call.communicator().backend() != calls.getFirst().communicator().backend()) {
        return false;
      }
    }
    return !calls.isEmpty();
  }
}
