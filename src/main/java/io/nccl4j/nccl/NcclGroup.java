package io.nccl4j.nccl;

import io.nccl4j.GroupCall;
import io.nccl4j.OperationCall;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import java.lang.foreign.MemorySegment;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

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
    Set<NcclCommunicator> communicators = new LinkedHashSet<>();
    try {
      for (GroupCall call : calls) {
        if (!communicators.contains(communicator(call))) {
          communicator(call).enter("ncclGroupStart");
          communicators.add(communicator(call));
        }
      }
      int result = launchInside(calls);
      settle(communicators, result);
    } finally {
      communicators.forEach(NcclCommunicator::leave);
    }
  }

  private static int launchInside(List<GroupCall> calls) {
    NcclResults.check(nccl_h.ncclGroupStart(), "ncclGroupStart");
    boolean complete = false;
    try {
      for (GroupCall call : calls) {
        communicator(call).enqueue((OperationCall) call);
      }
      complete = true;
    } finally {
      if (!complete) {
        // NCCL launches whatever it was not asked to refuse: what failed may have failed before it.
        poison();
        nccl_h.ncclGroupEnd();
      }
    }
    return nccl_h.ncclGroupEnd();
  }

  /** Makes a call that NCCL must refuse, after which the group's end launches nothing. */
  private static void poison() {
    MemorySegment none = MemorySegment.NULL;
    nccl_h.ncclAllReduce(none, none, 1, nccl_h.ncclFloat(), nccl_h.ncclSum(), none, none);
  }

  /** Waits for all communicators, then throws the first failure. */
  private static void settle(Set<NcclCommunicator> communicators, int result) {
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, "ncclGroupEnd");
      return;
    }
    RuntimeException first = null;
    for (NcclCommunicator communicator : communicators) {
      try {
        communicator.settle(result, "ncclGroupEnd");
      } catch (RuntimeException failure) {
        if (first == null) {
          first = failure;
        } else {
          first.addSuppressed(failure);
        }
      }
    }
    if (first != null) {
      throw first;
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
