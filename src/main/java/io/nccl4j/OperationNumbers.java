package io.nccl4j;

import io.nccl4j.spi.CallCount;
import io.nccl4j.spi.CommunicatorContext;
import java.util.List;
import java.util.stream.LongStream;

/**
 * The sequence numbers of one rank's operations; the number of a collective is the same on every
 * rank. Also tracks which thread calls the rank's collectives, to detect a thread whose ranks would
 * wait for each other.
 */
final class OperationNumbers {
  private static final OperationNumbers[] NONE = {};

  /** The collectives whose operations are remembered: more than a device queues. */
  private static final int REMEMBERED = 4096;

  private static final Operation[] OPERATIONS = Operation.values();
  private static final byte CAPTURED = -1;

  private final CommunicatorContext communicator;
  private long collectives;
  // Of each operation, without captured ones.
  private final long[] calls = new long[OPERATIONS.length];
  private long[] sends = {};
  private long[] receives = {};
  // Of the last collectives, by number.
  private final byte[] operations = new byte[REMEMBERED];
  // The last collective that the device is known to have completed, and the messages that it is
  // not known to have.
  private long completed;
  private long pendingMessages;
  // The last collective whose launch has returned.
  private volatile long launched;

  // The numbers of the other ranks that were created together with this one by one thread.
  private OperationNumbers[] siblings = NONE;
  // The thread that last called a collective outside any group, and the numbers of the first and
  // the last of its collectives.
  private volatile Thread caller;
  private volatile long firstCalled;
  private volatile long lastCalled;

  OperationNumbers(CommunicatorContext communicator) {
    this.communicator = communicator;
  }

  /**
   * Counts an operation; returns its number among the collectives, or among the messages to or from
   * its peer. An operation that only one backend has is not counted and has number 0. Synchronized,
   * since a second thread is refused only after its operation was counted.
   *
   * @param captured whether the library runs it as a part of a graph
   */
  @SuppressWarnings("EnumOrdinal") // An index of OPERATIONS.
  synchronized long count(Operation operation, int peer, boolean captured) {
    if (operation == null) {
      return 0;
    }
    if (!operation.pointToPoint()) {
      collectives++;
      operations[slot(collectives)] = captured ? CAPTURED : (byte) operation.ordinal();
      if (!captured) {
        calls[operation.ordinal()]++;
      }
      return collectives;
    }
    pendingMessages++;
    if (sends.length == 0) {
      sends = new long[communicator.size()];
      receives = new long[communicator.size()];
    }
    return ++(operation == Operation.SEND ? sends : receives)[peer];
  }

  /**
   * Undoes the count of an operation that was rejected: no operation of another rank matches it.
   */
  @SuppressWarnings("EnumOrdinal") // An index of OPERATIONS.
  synchronized void uncount(Operation operation, int peer, boolean captured) {
    if (operation == null) {
      return;
    }
    if (operation.pointToPoint()) {
      pendingMessages--;
      (operation == Operation.SEND ? sends : receives)[peer]--;
    } else {
      collectives--;
      if (!captured) {
        calls[operation.ordinal()]--;
      }
    }
  }

  private static int slot(long number) {
    return (int) (number % REMEMBERED);
  }

  /** Records that the device has completed an operation, and so the collectives before it. */
  synchronized void completed(Operation operation, long number) {
    if (operation == null) {
      return;
    }
    if (operation.pointToPoint()) {
      pendingMessages--;
    } else {
      completed = Math.max(completed, number);
    }
  }

  /**
   * Returns the number of the oldest collective that the device has not completed; 0 if there is
   * none, or perhaps an older message.
   */
  synchronized long oldestPending() {
    return pendingMessages > 0 || completed == collectives ? 0 : completed + 1;
  }

  /**
   * Returns the operation of a collective; null if it was captured, if it is too long ago, or for
   * 0.
   */
  synchronized Operation operation(long number) {
    if (number == 0 || collectives - number >= REMEMBERED) {
      return null;
    }
    byte operation = operations[slot(number)];
    return operation == CAPTURED ? null : OPERATIONS[operation];
  }

  /** Records that the launch of a collective has returned: the library has counted it, too. */
  void launched(long number) {
    launched = number;
  }

  /** Returns where a collective is among this rank's calls of the same operation. */
  synchronized CallCount calls(long number) {
    byte operation = operations[slot(number)];
    if (number == 0 || collectives - number >= REMEMBERED || operation == CAPTURED) {
      return CallCount.UNKNOWN;
    }
    long returned = launched;
    long later = later(operation, number, returned);
    long pending = later(operation, Math.max(number, returned), collectives);
    return new CallCount(
        calls[operation] - later - pending, returned < number ? -1 : later, pending);
  }

  private long later(byte operation, long number, long last) {
    return LongStream.rangeClosed(number + 1, last)
        .filter(other -> operations[slot(other)] == operation)
        .count();
  }

  /** Returns the number of operations counted. */
  synchronized long operations() {
    return collectives + LongStream.of(sends).sum() + LongStream.of(receives).sum();
  }

  /** Returns the number of collectives enqueued. */
  long collectives() {
    return collectives;
  }

  /** Sets the numbers of the ranks that one thread created together with this one. */
  void setSiblings(List<OperationNumbers> others) {
    siblings = others.toArray(OperationNumbers[]::new);
  }

  /**
   * Records that this thread is about to call the next collective outside any group.
   *
   * @throws IllegalStateException if this thread has already called the same collective for another
   *     rank outside any group
   */
  void beginCall(Operation operation) {
    if (siblings.length > 0 && caller != Thread.currentThread()) {
      becomeCaller(operation);
    }
  }

  /** Records that the collective has been called. */
  void endCall() {
    if (siblings.length > 0) {
      lastCalled = collectives;
    }
  }

  /**
   * Makes this thread the caller. A thread is the caller of at most one of the ranks created
   * together, so a thread that uses only one rank gets here once.
   */
  private void becomeCaller(Operation operation) {
    Thread thread = Thread.currentThread();
    long number = collectives + 1;
    for (OperationNumbers sibling : siblings) {
      // First: if another thread has made the call since, it is also seen as the caller.
      long last = sibling.lastCalled;
      if (sibling.caller != thread) {
        continue;
      }
      if (sibling.firstCalled <= number && number <= last) {
        throw new IllegalStateException(
            "this thread has called collective %d of %s outside a group and now calls it for %s (%s); the first call may wait for the second, so call both in one Group.run, or each in its own thread"
                .formatted(number, sibling.communicator, communicator, operation.method()));
      }
      sibling.caller = null;
    }
    firstCalled = number;
    caller = thread;
  }
}
