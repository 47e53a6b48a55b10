package io.nccl4j.nccl;

import io.nccl4j.Communicator;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.spi.CommunicatorContext;
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
 * The communicators that are made of one, by a split, a shrink or a grow: with whose settings, in
 * which order, and what becomes of those that were given up. {@code ChildCommunicators} of the
 * contract checks the arguments before, and {@link Making} has the native calls.
 */
final class Children {
  private final NcclCommunicatorDriver parent;
  private final NcclBackendDriver backend;
  private final AtomicBoolean connecting = new AtomicBoolean();
  // Those that were given up while NCCL was still making them.
  private final List<NcclCommunicatorDriver> late = new CopyOnWriteArrayList<>();
  // NCCL makes only one at a time: one whose caller was interrupted is for the next.
  private volatile UniqueId growId;
  private int count;

  Children(NcclCommunicatorDriver parent, NcclBackendDriver backend) {
    this.parent = parent;
    this.backend = backend;
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

  /**
   * Returns a child as the contract makes it, which keeps what only NCCL was told of its parent.
   */
  NcclCommunicatorDriver inheriting(Making making, CommunicatorContext child) {
    NcclConfig settings = parent.settings().withCommon(child.config());
    return new NcclCommunicatorDriver(backend, settings, making, child);
  }

  /** Returns a child with settings of its own. */
  NcclCommunicatorDriver named(NcclConfig settings, Making making, CommunicatorContext child) {
    NativeConfig.checkName(settings, backend.version());
    return new NcclCommunicatorDriver(backend, settings, making, child);
  }

  /** Returns what the ranks of the next child have in common. */
  Object nextWorld(int color) {
    return List.of(parent.world(), ++count, color);
  }

  /** Makes the id of a grow, when this rank's streams have passed the parent's operations. */
  UniqueId newGrowId() {
    String function = "ncclCommGetUniqueId";
    backend.version().require(function);
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
            parent.guarded(() -> nccl_h.ncclCommGetUniqueId(comm, id)), "ncclCommGetUniqueId");
        growId = UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
      }
    }
  }

  /** Takes a child that was given up: NCCL may write its pointer yet, for this end to free. */
  void adopt(NcclCommunicatorDriver child) {
    late.add(child);
  }

  /** Frees them when NCCL, with the parent freed, writes no pointer any more. */
  void freeLate() {
    late.forEach(NcclCommunicatorDriver::freeIfNobodyInside);
  }
}
