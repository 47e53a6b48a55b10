package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.Member;
import io.nccl4j.internal.reference.rank.Patience;

/**
 * One entry of a stream's queue: an operation of a communicator, which is written into the reused
 * entry, or any other action.
 */
public final class Task {
  /** What a stream does that is not one operation of one communicator. */
  public interface Action {
    /** Does it, in the stream's worker. */
    void run(Patience patience);
  }

  // Whose it is: what is pending keeps its stream.
  ReferenceStream stream;
  final Call call = new Call();
  Member member;
  long ticket;
  Action action;
  // What records it, or null.
  SpanTasks recorded;

  void clear() {
    stream = null;
    call.clear();
    member = null;
    action = null;
    recorded = null;
  }
}
