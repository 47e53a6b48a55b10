package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.IdleStrategy;

/**
 * One entry of a stream's queue: an operation of a communicator, or any other action. Entries are
 * reused.
 */
public final class StreamTask {
  /** A task that is not a single operation of one communicator. */
  public interface Action {
    /** Runs the task in the stream's worker thread. */
    void run(IdleStrategy idleStrategy);
  }

  // A pending task keeps its stream reachable.
  ReferenceStream stream;
  final Call call = new Call();
  HostedRank hostedRank;
  long turnNumber;
  Action action;
  // The trace that this task belongs to, or null.
  TracedTasks traced;

  void clear() {
    stream = null;
    call.clear();
    hostedRank = null;
    action = null;
    traced = null;
  }
}
