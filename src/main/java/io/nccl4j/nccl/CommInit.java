package io.nccl4j.nccl;

import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.OptionalLong;
import java.util.SortedSet;

/**
 * The native call that creates a rank's communicator. It writes the new pointer into the cell of
 * the new communicator's handle, possibly long after the call has returned. Each kind of call has
 * its own way to query completion.
 */
sealed interface CommInit {
  /** The cohort of every communicator that the old and new ranks of a grow share. */
  Object GROWN = "ranks of a grow";

  /** Returns the C function. */
  String function();

  /** Checks that the library has the function. */
  default void check(NcclVersion library) {
    library.require(function());
  }

  /** Returns the key that the ranks of the new communicator share. Called once. */
  Object communicatorKey();

  /**
   * Returns the hash by which NCCL's RAS service and its log name the new communicator, if nccl4j
   * can compute it. Called once.
   */
  default OptionalLong hash() {
    return OptionalLong.empty();
  }

  /** Returns the children of the parent communicator, or null if there is no parent. */
  default NativeChildren children() {
    return null;
  }

  /**
   * Returns a key that is equal for the ranks of this process that may wait for each other. Old and
   * new ranks of a grow do not know each other's communicator key, so all grows share one cohort.
   */
  default Object cohort(Object communicatorKey) {
    return children() != null && children().cohort() == GROWN ? GROWN : communicatorKey;
  }

  /** Waits for operations that must complete before the call. */
  default void prepare() {
    // Most calls need not wait.
  }

  /** Makes the call and waits for it. Called by the thread inside the new handle. */
  void initialize(CommunicatorHandle child, MemorySegment config, Arena arena);

  private static MemorySegment bytes(List<UniqueId> ids, Arena arena) {
    MemorySegment bytes = ncclUniqueId.allocateArray(ids.size(), arena);
    for (int i = 0; i < ids.size(); i++) {
      ncclUniqueId.asSlice(bytes, i).copyFrom(MemorySegment.ofArray(ids.get(i).toBytes()));
    }
    return bytes;
  }

  /** A rank of a communicator with one id. */
  record Init(UniqueId id, int size, int rank) implements CommInit {
    @Override
    public Object communicatorKey() {
      return id;
    }

    @Override
    public OptionalLong hash() {
      return OptionalLong.of(CommunicatorHash.ofId(id));
    }

    @Override
    public String function() {
      return "ncclCommInitRankConfig";
    }

    @Override
    public void check(NcclVersion library) {
      // Every supported release has it.
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      MemorySegment cell = child.cell();
      MemorySegment bytes = bytes(List.of(id), arena);
      int result = nccl_h.ncclCommInitRankConfig(cell, size, bytes, rank, config);
      child.settle(result, function());
    }
  }

  /** A rank of a communicator with several ids. */
  record InitScalable(List<UniqueId> ids, int size, int rank) implements CommInit {
    @Override
    public Object communicatorKey() {
      return List.copyOf(ids);
    }

    @Override
    public OptionalLong hash() {
      return OptionalLong.of(CommunicatorHash.ofId(ids.getFirst()));
    }

    @Override
    public String function() {
      return "ncclCommInitRankScalable";
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      MemorySegment cell = child.cell();
      MemorySegment bytes = bytes(ids, arena);
      int result = nccl_h.ncclCommInitRankScalable(cell, size, rank, ids.size(), bytes, config);
      child.settle(result, function());
    }
  }

  /** A child of a split. */
  record Split(NativeChildren children, int color, int key) implements CommInit {
    @Override
    public Object communicatorKey() {
      return children.nextCommunicatorKey(color);
    }

    @Override
    public OptionalLong hash() {
      return children.nextSplitHash(color);
    }

    @Override
    public String function() {
      return "ncclCommSplit";
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      MemorySegment cell = child.cell();
      CommunicatorHandle parent = children.parent();
      parent.insideOnOwnThread(
          function(),
          comm -> {
            int result = parent.guarded(() -> nccl_h.ncclCommSplit(comm, color, key, cell, config));
            children.settle(child, result, function());
          });
    }
  }

  /** A child of a shrink. */
  record Shrink(NativeChildren children, SortedSet<Integer> excluded, ShrinkMode mode)
      implements CommInit {
    @Override
    public Object communicatorKey() {
      return children.nextCommunicatorKey(nccl_h.NCCL_SPLIT_NOCOLOR());
    }

    @Override
    public OptionalLong hash() {
      return children.shrinkHash();
    }

    @Override
    public String function() {
      return "ncclCommShrink";
    }

    @Override
    public void prepare() {
      if (mode != ShrinkMode.ABORT_FIRST) {
        children.parent().context().awaitStreams(function());
      }
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      int flags =
          mode == ShrinkMode.ABORT_FIRST
              ? nccl_h.NCCL_SHRINK_ABORT()
              : nccl_h.NCCL_SHRINK_DEFAULT();
      // A copy, because NCCL sorts the array.
      int[] ranks = excluded.stream().mapToInt(Integer::intValue).toArray();
      MemorySegment array = arena.allocateFrom(ValueLayout.JAVA_INT, ranks);
      MemorySegment cell = child.cell();
      CommunicatorHandle parent = children.parent();
      parent.insideOnOwnThread(
          function(),
          comm -> {
            if (mode == ShrinkMode.ABORT_FIRST) {
              parent.endOperations();
            }
            int result =
                parent.guarded(
                    () -> nccl_h.ncclCommShrink(comm, array, ranks.length, cell, config, flags));
            children.settle(child, result, function());
          });
    }
  }

  /** An existing rank of a growing communicator. The id is null except on one rank. */
  record Grow(NativeChildren children, int newSize, UniqueId id) implements CommInit {
    private static final int KEEPS_ITS_RANK = -1;

    @Override
    public Object cohort(Object communicatorKey) {
      return GROWN;
    }

    @Override
    public Object communicatorKey() {
      return children.nextCommunicatorKey(nccl_h.NCCL_SPLIT_NOCOLOR());
    }

    @Override
    public OptionalLong hash() {
      children.countGrow();
      return OptionalLong.empty();
    }

    @Override
    public String function() {
      return "ncclCommGrow";
    }

    @Override
    public void prepare() {
      children.parent().context().awaitStreams(function());
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      MemorySegment bytes = id == null ? MemorySegment.NULL : bytes(List.of(id), arena);
      MemorySegment cell = child.cell();
      CommunicatorHandle parent = children.parent();
      parent.insideOnOwnThread(
          function(),
          comm -> {
            parent.context().useGrowId(id);
            int result =
                parent.guarded(
                    () -> nccl_h.ncclCommGrow(comm, newSize, bytes, KEEPS_ITS_RANK, cell, config));
            // Here the new communicator reports completion; the old one is in use until then.
            child.settle(result, function());
          });
    }
  }

  /** A new rank of a growing communicator. */
  record Join(UniqueId id, int newSize, int rank) implements CommInit {
    @Override
    public Object cohort(Object communicatorKey) {
      return GROWN;
    }

    @Override
    public Object communicatorKey() {
      // The old ranks do not get the id, so they cannot share this key.
      return id;
    }

    @Override
    public String function() {
      return "ncclCommGrow";
    }

    @Override
    public void initialize(CommunicatorHandle child, MemorySegment config, Arena arena) {
      MemorySegment none = MemorySegment.NULL;
      MemorySegment cell = child.cell();
      MemorySegment bytes = bytes(List.of(id), arena);
      int result = nccl_h.ncclCommGrow(none, newSize, bytes, rank, cell, config);
      child.settle(result, function());
    }
  }
}
