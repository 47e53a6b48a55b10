package io.nccl4j.nccl;

import io.nccl4j.GroupCall;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import java.util.List;

/**
 * The launching of a group that has been recorded and checked: {@code ncclGroupStart}, the calls,
 * {@code ncclGroupEnd}.
 */
final class NcclGroup {
  private NcclGroup() {}

  /**
   * Launches the calls together. If one is refused, {@code ncclGroupEnd} is called all the same: it
   * takes the group back, which a refused call has poisoned, and this thread's group depth with it.
   */
  static void launch(List<GroupCall> calls) {
    checkOneKind(calls);
    NcclResults.check(nccl_h.ncclGroupStart(), "ncclGroupStart");
    RuntimeException first = null;
    try {
      for (GroupCall call : calls) {
        communicator(call).enqueue(call);
      }
    } catch (RuntimeException refused) {
      first = refused;
    }
    int result = nccl_h.ncclGroupEnd();
    if (first != null) {
      throw first;
    }
    if (result == nccl_h.ncclInProgress()) {
      calls.forEach(call -> communicator(call).settle("ncclGroupEnd"));
    } else {
      NcclResults.check(result, "ncclGroupEnd");
    }
  }

  private static void checkOneKind(List<GroupCall> calls) {
    boolean blocking = communicator(calls.getFirst()).config().blocking();
    for (GroupCall call : calls) {
      if (call.communicator().config().blocking() != blocking) {
        throw new IllegalArgumentException(
            "the group mixes blocking and non-blocking communicators, which NCCL cannot launch together: "
                + calls.getFirst().communicator()
                + " and "
                + call.communicator());
      }
    }
  }

  private static NcclCommunicator communicator(GroupCall call) {
    return (NcclCommunicator) call.communicator();
  }
}
