package io.nccl4j;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Launches several operations together, so that they progress together.
 *
 * {@snippet :
 * Group.run(() -> {
 *   comm.send(outgoing, next, stream);
 *   comm.recv(incoming, previous, stream);
 * });
 * }
 *
 * <p>A group is needed for sends and receives that depend on each other, for one thread that drives
 * several communicators, and for creating several communicators from one thread.
 *
 * <p>Within {@link #run}, this thread's operations are validated when they are called, but launched
 * only when the outermost lambda has returned; objects closed in the meantime are then detected. If
 * a lambda throws, its operations are discarded without being launched, and the communicators that
 * it started to create are aborted. C: {@code ncclGroupStart}, {@code ncclGroupEnd}.
 *
 * <p>The operations of a group have no order: NCCL may run several of them at the same time, also
 * those of one stream. So an operation must not write memory that another operation of the group
 * reads or writes, whatever their communicators, ranks and streams; a violation is rejected when
 * the group ends. Only the memory that this rank's part of an operation uses is considered; an
 * operation may be in-place, and several may read the same memory. A receive from this rank itself
 * into the memory that it sends to itself has no effect. Sends to a peer still match its receives
 * in the order of the calls, and collectives of a communicator match those of its other ranks in
 * the order of the calls. Operations that depend on each other belong in two groups, or on one
 * stream outside any group. Memory that puts of other ranks write is not checked.
 *
 * <p>Only operations are deferred. Copies and events are enqueued at once, before the operations of
 * the group. Calls that wait, including {@link Stream#completion} and a copy to the host, are
 * rejected on a stream for which the group has operations.
 *
 * <p>A group contains either operations or the creation of communicators, not both. Two ranks of
 * one communicator must not share a stream in a group: the stream would start the second rank's
 * part only after the first rank's part, which waits for the second.
 *
 * @see <a href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/groups.html">Group
 *     calls</a>
 */
@NullMarked
public final class Group {
  private static final ThreadLocal<Group> OF_THREAD = new ThreadLocal<>();

  /** A communicator and a stream that orders its calls. */
  private record StreamUse(CommunicatorCore communicator, Stream stream) {}

  private final List<Call> calls = new ArrayList<>();
  private final List<CommunicatorCore> unconnected = new ArrayList<>();
  // For each unconnected communicator its parent, or null.
  private final List<@Nullable CommunicatorCore> parents = new ArrayList<>();

  private Group() {}

  /**
   * Runs a lambda, then launches its operations together. Groups may be nested; the outermost one
   * launches. C: {@code ncclGroupStart}, {@code ncclGroupEnd}.
   *
   * @param body enqueues operations, or creates communicators, from this thread; its exceptions are
   *     thrown unchanged
   * @throws NcclException if launching failed; none of the group's operations is guaranteed to have
   *     been launched
   * @throws java.util.concurrent.CancellationException if the thread is interrupted while
   *     communicators of the group connect; they are aborted, and its interrupt status stays set
   * @throws IllegalStateException if the group contains both operations and the creation of
   *     communicators, if a communicator is split, shrunk or grown twice in it, or if an object
   *     that it uses was closed before its end
   * @throws IllegalArgumentException if an operation writes memory that another one uses, if two
   *     ranks of one communicator use one stream, or if the group contains blocking and
   *     non-blocking communicators of NCCL; nothing is launched then
   */
  public static void run(Runnable body) {
    Objects.requireNonNull(body, "body");
    Group outer = current();
    if (outer != null) {
      outer.collect(body);
      return;
    }
    Group group = new Group();
    group.collectOutermost(body);
    group.launch();
  }

  private void collectOutermost(Runnable body) {
    OF_THREAD.set(this);
    ThreadScope.beginGroup(this::keeps);
    try {
      collect(body);
    } finally {
      ThreadScope.endGroup();
      // Not removed, since the next look-up would allocate an entry again.
      OF_THREAD.set(null);
    }
  }

  /** Returns whether this group has calls of a stream. */
  private boolean keeps(Stream stream) {
    return calls.stream().anyMatch(call -> call.stream() == stream);
  }

  /** Runs a lambda, which adds to this group. If it throws, the group forgets what it added. */
  private void collect(Runnable body) {
    int callsBefore = calls.size();
    int unconnectedBefore = unconnected.size();
    boolean returned = false;
    try {
      body.run();
      returned = true;
    } finally {
      if (!returned) {
        forget(callsBefore, unconnectedBefore);
      }
    }
  }

  /** {@return whether this thread is within {@link #run}, so that its operations are deferred} */
  public static boolean running() {
    return current() != null;
  }

  /** Returns this thread's open group, or null. */
  static @Nullable Group current() {
    return OF_THREAD.get();
  }

  /** Adds a checked call, which is launched when the group ends. */
  void add(Call call) {
    if (!unconnected.isEmpty()) {
      throw mixed();
    }
    calls.add(call);
  }

  void add(CommunicatorCore communicator, @Nullable CommunicatorCore parent) {
    if (!calls.isEmpty()) {
      throw mixed();
    }
    if (parent != null && parents.contains(parent)) {
      throw new IllegalStateException(
          "a group may contain one split, shrink or grow of a communicator; end the group before the next of "
              + parent);
    }
    unconnected.add(communicator);
    parents.add(parent);
  }

  private static IllegalStateException mixed() {
    return new IllegalStateException(
        "a group may contain either operations or the creation of communicators; use a group for each");
  }

  /** Throws, and aborts the new communicators, if a parent has ended since the call. */
  private void checkParents() {
    boolean open = false;
    try {
      parents.stream().filter(Objects::nonNull).forEach(parent -> parent.checkCanCreateChild());
      open = true;
    } finally {
      if (!open) {
        unconnected.forEach(CommunicatorCore::abort);
      }
    }
  }

  private void forget(int keptCalls, int keptUnconnected) {
    calls.subList(keptCalls, calls.size()).clear();
    List<CommunicatorCore> dropped = unconnected.subList(keptUnconnected, unconnected.size());
    dropped.forEach(CommunicatorCore::abort);
    dropped.clear();
    parents.subList(keptUnconnected, parents.size()).clear();
  }

  /**
   * Returns the checked operations of a lambda without launching them.
   *
   * @throws IllegalStateException if this thread has a group open, if the lambda creates
   *     communicators or closes an object that its operations use, or if a stream is being captured
   * @throws IllegalArgumentException if an operation writes memory that another one uses
   */
  static List<Call> record(Runnable body) {
    Objects.requireNonNull(body, "body");
    if (current() != null) {
      throw new IllegalStateException(
          "operations cannot be recorded within a group; end the group first");
    }
    Group group = new Group();
    group.collectOutermost(body);
    if (!group.unconnected.isEmpty()) {
      group.unconnected.forEach(CommunicatorCore::abort);
      throw mixed();
    }
    for (Call call : group.calls) {
      checkStillOpen(call);
      call.stream().checkNotCaptured("recording");
    }
    GroupMemory.check(group.calls);
    return List.copyOf(group.calls);
  }

  /** Throws if an object was closed between the call and the end of its group. */
  private static void checkStillOpen(Call call) {
    call.stream().checkOpen();
    call.checkStillOpen();
  }

  private void launch() {
    if (!unconnected.isEmpty()) {
      checkParents();
      CommunicatorCore.connectTogether(List.copyOf(unconnected));
    } else if (!calls.isEmpty()) {
      launchCalls();
    }
  }

  private void launchCalls() {
    calls.forEach(Group::checkStillOpen);
    checkStreamsNotShared();
    GroupMemory.check(calls);
    CallLauncher.launch(calls);
  }

  /**
   * Throws if two ranks of one communicator share a stream: the first rank's operation would wait
   * for the second rank's, which the stream starts after it.
   */
  private void checkStreamsNotShared() {
    Set<StreamUse> uses = new LinkedHashSet<>();
    calls.forEach(call -> uses.add(new StreamUse(call.communicator(), call.stream())));
    List<StreamUse> earlier = new ArrayList<>();
    for (StreamUse use : uses) {
      for (StreamUse other : earlier) {
        if (use.stream == other.stream
            && use.communicator != other.communicator
            && use.communicator
                .driver()
                .communicatorKey()
                .equals(other.communicator.driver().communicatorKey())) {
          throw new IllegalArgumentException(
              "the group has calls of "
                  + other.communicator
                  + " and of "
                  + use.communicator
                  + ", two ranks of one communicator, on one stream, where the first would wait for the second indefinitely; each rank needs its own stream: "
                  + use.stream);
        }
      }
      earlier.add(use);
    }
  }
}
