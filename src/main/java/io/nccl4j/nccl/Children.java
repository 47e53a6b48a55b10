package io.nccl4j.nccl;

import io.nccl4j.CommunicatorConfig;
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

/**
 * The communicators that are made of one, by a split, a shrink or a grow: with whose settings, in
 * which order, and what becomes of those that were given up. {@link NcclCommunicator} checks the
 * arguments before, and {@link Making} has the native calls.
 */
final class Children {
  private final NcclCommunicator parent;
  private final NcclBackend backend;
  private final AtomicBoolean connecting = new AtomicBoolean();
  // Those that were given up while NCCL was still making them.
  private final List<NcclCommunicator> late = new CopyOnWriteArrayList<>();
  // NCCL makes only one at a time: one whose caller was interrupted is for the next.
  private volatile UniqueId growId;
  private int count;

  Children(NcclCommunicator parent, NcclBackend backend) {
    this.parent = parent;
    this.backend = backend;
  }

  /** Returns a child with settings of its own, connected now or when this thread's group ends. */
  NcclCommunicator connected(NcclConfig settings, Making making) {
    return named(settings, making).connected(parent);
  }

  /**
   * Connects a child with settings of its own in the background. Only one at a time: which of two
   * threads came to NCCL first would be another question on every rank.
   */
  CompletionStage<NcclCommunicator> connectedAsync(NcclConfig settings, Making making) {
    NcclCommunicator child = named(settings, making);
    if (!connecting.compareAndSet(false, true)) {
      throw new IllegalStateException(
          parent + " is in use until the stage of an earlier child has completed");
    }
    boolean begun = false;
    try {
      CompletionStage<NcclCommunicator> connected =
          child.connectedAsync().whenComplete((made, failure) -> connecting.set(false));
      begun = true;
      return connected;
    } finally {
      if (!begun) {
        connecting.set(false);
      }
    }
  }

  /**
   * Returns a child as the contract makes it, which keeps what only NCCL was told of its parent.
   */
  NcclCommunicator unconnected(CommunicatorConfig config, Making making) {
    return of(parent.settings().withCommon(config), making);
  }

  private NcclCommunicator named(NcclConfig settings, Making making) {
    NativeConfig.checkName(settings, backend.version());
    return of(settings, making);
  }

  private NcclCommunicator of(NcclConfig settings, Making making) {
    return new NcclCommunicator(backend, settings, parent.device(), -1, -1, making);
  }

  /** Returns what the ranks of the next child have in common. */
  Object nextWorld(int color) {
    return List.of(parent.world(), ++count, color);
  }

  /** Makes the id of a grow, when this rank's streams have passed the parent's operations. */
  UniqueId newGrowId() {
    String function = "ncclCommGetUniqueId";
    backend.version().require(function);
    parent.finishOperations(function);
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
            parent.guarded(() -> nccl_h.ncclCommGetUniqueId(comm, id)), "ncclCommGetUniqueId");
        growId = UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
      }
    }
  }

  /** Takes a child that was given up: NCCL may write its pointer yet, for this end to free. */
  void adopt(NcclCommunicator child) {
    late.add(child);
  }

  /** Frees them when NCCL, with the parent freed, writes no pointer any more. */
  void freeLate() {
    late.forEach(NcclCommunicator::freeIfNobodyInside);
  }
}
