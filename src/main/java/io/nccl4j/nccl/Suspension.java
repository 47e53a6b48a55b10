package io.nccl4j.nccl;

import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Suspends and resumes a communicator, and reports how much GPU memory NCCL uses for it. */
final class Suspension {
  private final CommunicatorHandle communicator;
  private volatile boolean inProgress;

  Suspension(CommunicatorHandle communicator) {
    this.communicator = communicator;
  }

  /** Returns whether the suspension has begun and not ended. */
  boolean inProgress() {
    return inProgress;
  }

  /** Returns whether the communicator is open and suspended. */
  boolean isSuspended() {
    return inProgress && communicator.context().isOpen();
  }

  /** Waits until this rank's streams have completed the operations, then releases the memory. */
  void begin() {
    String function = "ncclCommSuspend";
    communicator.library().require(function);
    communicator.context().checkConnected();
    communicator.context().awaitStreams(function);
    communicator.inside(
        function,
        communicator.peers(),
        comm -> {
          communicator.callAndSettle(
              function, () -> nccl_h.ncclCommSuspend(comm, nccl_h.NCCL_SUSPEND_MEM()));
          setSuspended(true);
        });
  }

  /** Reacquires the memory. */
  void end() {
    String function = "ncclCommResume";
    communicator.library().require(function);
    if (!isSuspended()) {
      communicator.context().checkConnected();
      throw new IllegalStateException("not suspended: " + communicator);
    }
    communicator.inside(function, communicator.peers(), this::resumeInside);
  }

  /**
   * Reacquires the memory, even if the caller has stopped waiting. Called by the thread inside the
   * communicator.
   */
  void resumeInside(MemorySegment comm) {
    communicator.callAndSettle("ncclCommResume", () -> nccl_h.ncclCommResume(comm));
    setSuspended(false);
  }

  private void setSuspended(boolean suspended) {
    inProgress = suspended;
    communicator.context().markSuspended(suspended);
  }

  /** Queries the memory statistics from NCCL. */
  MemoryStatistics statistics() {
    communicator.library().require("ncclCommMemStats");
    if (!isSuspended()) {
      communicator.context().checkConnected();
    }
    MemorySegment comm = communicator.enter("ncclCommMemStats");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(ValueLayout.JAVA_LONG);
      return new MemoryStatistics(
          statistic(comm, nccl_h.ncclStatGpuMemTotal(), value),
          statistic(comm, nccl_h.ncclStatGpuMemSuspend(), value),
          statistic(comm, nccl_h.ncclStatGpuMemPersist(), value),
          statistic(comm, nccl_h.ncclStatGpuMemSuspended(), value) != 0);
    } finally {
      communicator.leave();
    }
  }

  private long statistic(MemorySegment comm, int kind, MemorySegment value) {
    NcclResults.check(
        communicator.guarded(() -> nccl_h.ncclCommMemStats(comm, kind, value)), "ncclCommMemStats");
    return value.get(ValueLayout.JAVA_LONG, 0);
  }
}
