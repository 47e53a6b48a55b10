package io.nccl4j;

import io.nccl4j.spi.CommunicatorContext;
import java.lang.invoke.VarHandle;
import java.util.List;

/**
 * The numbers of one rank's operations: a collective's is the same on every rank. It also knows
 * which thread calls the rank's collectives, since ranks of one thread must not wait for each
 * other.
 */
final class OperationNumbers {
  private static final OperationNumbers[] NONE = {};

  private final CommunicatorContext communicator;
  private long collectives;
  private long[] sends = {};
  private long[] receives = {};

  // Those of the other ranks of this communicator that one thread made together with this one.
  private OperationNumbers[] siblings = NONE;
  // The thread that called a collective last outside any group, and the numbers of the first and
  // the last of its collectives.
  private Thread caller;
  private long firstCalled;
  private long lastCalled;

  OperationNumbers(CommunicatorContext communicator) {
    this.communicator = communicator;
  }

  /**
   * Counts an operation; returns its number among the collectives, or among the messages to or from
   * its peer. What is refused does not count, since no other rank's operation meets it.
   */
  long count(Operation operation, int peer) {
    if (!operation.pointToPoint()) {
      return ++collectives;
    }
    if (sends.length == 0) {
      sends = new long[communicator.size()];
      receives = new long[communicator.size()];
    }
    return ++(operation == Operation.SEND ? sends : receives)[peer];
  }

  /** Takes back the count of an operation that was refused after it. */
  void uncount(Operation operation, int peer) {
    if (operation.pointToPoint()) {
      (operation == Operation.SEND ? sends : receives)[peer]--;
    } else {
      collectives--;
    }
  }

  /** Returns how many collectives have been enqueued. */
  long collectives() {
    return collectives;
  }

  /** Learns of the ranks that one thread made together with this one. */
  void siblings(List<OperationNumbers> others) {
    siblings = others.toArray(OperationNumbers[]::new);
  }

  /**
   * Notes that this thread is about to call the next collective outside any group.
   *
   * @throws IllegalStateException if this thread has called, outside any group, the very collective
   *     of another rank that it now calls of this one
   */
  void beginCall(Operation operation) {
    if (siblings.length > 0 && caller != Thread.currentThread()) {
      becomeCaller(operation);
    }
  }

  /** Notes that the collective has been called. */
  void endCall() {
    if (siblings.length > 0) {
      lastCalled = collectives;
    }
  }

  /**
   * Makes this thread the caller. Of the ranks that were made together, one at most has a thread as
   * its caller, so a thread that keeps to one rank comes here once.
   */
  private void becomeCaller(Operation operation) {
    Thread thread = Thread.currentThread();
    long number = collectives + 1;
    for (OperationNumbers sibling : siblings) {
      long last = sibling.lastCalled;
      // In this order, which the other thread's fence keeps too: if a thread that took over has
      // made the call, it is seen to be the caller.
      VarHandle.loadLoadFence();
      if (sibling.caller != thread) {
        continue;
      }
      if (sibling.firstCalled <= number && number <= last) {
        throw new IllegalStateException(
            "this thread has called collective %d of %s outside a group and now calls it of %s (%s); the first call may wait for the second, so call both in one Group.run, or each in a thread of its own"
                .formatted(number, sibling.communicator, communicator, operation.method()));
      }
      sibling.caller = null;
    }
    firstCalled = number;
    caller = thread;
    VarHandle.fullFence();
  }
}
