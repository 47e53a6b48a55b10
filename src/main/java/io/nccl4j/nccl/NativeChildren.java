package io.nccl4j.nccl;

import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * The communicators created from a parent by a split, a shrink or a grow: their order, and the ones
 * whose creation was abandoned. {@code ChildCommunicators} checks the arguments first; {@link
 * CommInit} makes the native calls.
 */
final class NativeChildren {
  private final CommunicatorHandle parent;
  private final Object communicatorKey;
  private final Object cohort;
  private final OptionalLong hash;
  // Abandoned while NCCL was still creating them.
  private final List<CommunicatorHandle> abandoned = new CopyOnWriteArrayList<>();
  // NCCL creates only one at a time. If the caller was interrupted, the next caller gets it.
  private volatile UniqueId growId;
  private int count;
  // As NCCL counts them: without shrinks.
  private int splitsAndGrows;

  /**
   * Creates an empty set of children.
   *
   * @param communicatorKey the key that the ranks of the parent share
   * @param cohort equal for the ranks of this process that may wait for each other
   * @param hash NCCL's hash of the parent, if it is known
   */
  NativeChildren(
      CommunicatorHandle parent, Object communicatorKey, Object cohort, OptionalLong hash) {
    this.parent = parent;
    this.communicatorKey = communicatorKey;
    this.cohort = cohort;
    this.hash = hash;
  }

  CommunicatorHandle parent() {
    return parent;
  }

  /** Returns the key that is equal for the ranks of this process that may wait for the parent. */
  Object cohort() {
    return cohort;
  }

  /** Returns the key that the ranks of the next child share. */
  Object nextCommunicatorKey(int color) {
    return List.of(communicatorKey, ++count, color);
  }

  /** Returns NCCL's hash of the next child of a split, if it is known. */
  OptionalLong nextSplitHash(int color) {
    splitsAndGrows++;
    return childHash(splitsAndGrows, color);
  }

  /** Returns NCCL's hash of every child of a shrink, if it is known. */
  OptionalLong shrinkHash() {
    return childHash(0, 0);
  }

  /** Counts a child of a grow, whose hash depends on what only its creator knows. */
  void countGrow() {
    splitsAndGrows++;
  }

  private OptionalLong childHash(int number, int color) {
    return hash.isEmpty()
        ? hash
        : OptionalLong.of(CommunicatorHash.ofChild(hash.getAsLong(), number, color));
  }

  /**
   * Waits until this rank's streams have completed the parent's operations, and creates a grow id.
   */
  UniqueId newGrowId() {
    String function = "ncclCommGetUniqueId";
    parent.library().require(function);
    parent.context().awaitStreams(function);
    parent.inside(function, parent.peers(), this::makeGrowId);
    UniqueId id = growId;
    growId = null;
    return id;
  }

  /** Creates an id, unless a caller has left one unused. Called by the thread inside. */
  private void makeGrowId(MemorySegment comm) {
    if (growId == null) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment id = ncclUniqueId.allocate(arena);
        NcclResults.check(
            parent.guarded(() -> nccl_h.ncclCommGetUniqueId(comm, id)), "ncclCommGetUniqueId");
        growId = UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
      }
    }
  }

  /**
   * Waits for a child that is complete when its parent is. If the wait fails, the child is kept:
   * NCCL may still write its pointer, which is freed when the parent ends.
   *
   * @param result the result of the call that creates the child
   */
  void settle(CommunicatorHandle child, int result, String function) {
    try {
      // A pending call also returns success. The new pointer is written when the parent is done.
      parent.settle(result, function);
    } catch (RuntimeException failure) {
      abandoned.add(child);
      throw failure;
    }
  }

  /**
   * Frees abandoned children. Called once NCCL has freed the parent and writes no more pointers.
   */
  void freeAbandoned() {
    abandoned.forEach(CommunicatorHandle::freeIfUnused);
  }
}
