package io.nccl4j.nccl;

import io.nccl4j.Communicator;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * What a communicator knows of those that are made of it, by a split, a shrink or a grow: in which
 * order, and which of them were given up. {@code ChildCommunicators} of the contract checks the
 * arguments before, and {@link CommInit} has the native calls.
 */
final class NativeChildren {
  private final NativeCommunicator parent;
  private final Object communicatorKey;
  private final Object cohort;
  private final AtomicBoolean connecting = new AtomicBoolean();
  // Those that were given up while NCCL was still making them.
  private final List<CommunicatorHandle> late = new CopyOnWriteArrayList<>();
  // NCCL makes only one at a time: one whose caller was interrupted is for the next.
  private volatile UniqueId growId;
  private int count;

  /**
   * Begins without any.
   *
   * @param world what the ranks of the parent that were made together have in common
   * @param cohort equal for those ranks of this process that may wait for each other
   */
  NativeChildren(NativeCommunicator parent, Object world, Object cohort) {
    this.parent = parent;
    this.communicatorKey = world;
    this.cohort = cohort;
  }

  NativeCommunicator parent() {
    return parent;
  }

  /** Returns what is equal for those ranks of this process that may wait for the parent. */
  Object cohort() {
    return cohort;
  }

  /**
   * Connects a child in the background. Only one at a time: which of two threads came to NCCL first
   * would be another question on every rank.
   *
   * @param make makes the child, which is not connected yet
   * @param connect begins to connect it
   */
  CompletionStage<Communicator> oneAtATime(
      Supplier<Communicator> make, Function<Communicator, CompletionStage<Communicator>> connect) {
    Communicator child = make.get();
    if (!connecting.compareAndSet(false, true)) {
      throw new IllegalStateException(
          parent + " is in use until the stage of an earlier child has completed");
    }
    boolean begun = false;
    try {
      CompletionStage<Communicator> connected =
          connect.apply(child).whenComplete((made, failure) -> connecting.set(false));
      begun = true;
      return connected;
    } finally {
      if (!begun) {
        connecting.set(false);
      }
    }
  }

  /** Returns what the ranks of the next child have in common. */
  Object nextCommunicatorKey(int color) {
    return List.of(communicatorKey, ++count, color);
  }

  /** Makes the id of a grow, when this rank's streams have passed the parent's operations. */
  UniqueId newGrowId() {
    String function = "ncclCommGetUniqueId";
    parent.library().require(function);
    parent.context().awaitStreams(function);
    parent.inside(function, parent.peers(), this::makeGrowId);
    UniqueId id = growId;
    growId = null;
    return id;
  }

  /** Makes an id, unless there is one whose caller did not wait for it; by the thread inside. */
  private void makeGrowId(MemorySegment comm) {
    if (growId == null) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment id = ncclUniqueId.allocate(arena);
        NcclResults.check(
            parent.handle().guarded(() -> nccl_h.ncclCommGetUniqueId(comm, id)),
            "ncclCommGetUniqueId");
        growId = UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
      }
    }
  }

  /**
   * Waits for a child that is made when its parent is done. A child that is given up is kept: NCCL
   * may write its pointer yet, for the end of the parent to free.
   *
   * @param result what the call that makes the child has answered
   */
  void settle(NativeCommunicator child, int result, String function) {
    try {
      // A pending call answers success too, and writes the new pointer when the parent is done.
      parent.settle(result, function);
    } catch (RuntimeException failure) {
      late.add(child.handle());
      throw failure;
    }
  }

  /** Frees those given up when NCCL, with the parent freed, writes no pointer any more. */
  void freeLate() {
    late.forEach(CommunicatorHandle::freeIfNobodyInside);
  }
}
