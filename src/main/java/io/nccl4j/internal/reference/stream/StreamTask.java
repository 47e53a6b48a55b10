package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.IdleStrategy;

/**
 * One entry of a stream's queue: an operation of a communicator, which is written into the reused
 * entry, or any other action.
 */
public final class StreamTask {
  /** What a stream does that is not one operation of one communicator. */
  public interface Action {
    /** Does it, in the stream's worker. */
    void run(IdleStrategy patience);
  }

  // Whose it is: what is pending keeps its stream.
  ReferenceStream stream;
  final Call call = new Call();
  HostedRank hostedRank;
  long turnNumber;
  Action action;
  // What records it, or null.
  TracedTasks recorded;

  void clear() {
    stream = null;
    call.clear();
    hostedRank = null;
    action = null;
    recorded = null;
  }
}
