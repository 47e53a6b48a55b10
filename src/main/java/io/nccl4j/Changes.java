package io.nccl4j;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * Counts what a call that has been checked must be checked again for: buffers, streams,
 * communicators and created operators that end, a communicator's every other change of state,
 * captures that begin, and recordings that begin, anywhere in the process. So the hot path compares
 * one number where it would look at each thing that it uses.
 *
 * <p>The lower bits count the groups that are open, since a call must look for its own thread's:
 * there is room for a million, nested ones included.
 */
final class Changes {
  /** What {@link #count} never is. */
  static final long NEVER = 0;

  private static final long CHANGE = 1L << 20;
  private static final VarHandle COUNT;

  private static volatile long count = CHANGE;

  static {
    try {
      COUNT = MethodHandles.lookup().findStaticVarHandle(Changes.class, "count", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private Changes() {}

  static long count() {
    return count;
  }

  /** Returns a count as it is while no group is open. */
  static long withoutGroups(long counted) {
    return counted & -CHANGE;
  }

  /**
   * Says that something has changed; after it has, and before anything is given back. Whoever read
   * the count before has not relied on more than was true then.
   */
  static void tell() {
    COUNT.getAndAdd(CHANGE);
  }

  static void groupOpened() {
    COUNT.getAndAdd(1L);
  }

  static void groupClosed() {
    COUNT.getAndAdd(-1L);
  }

  /** Returns whether any thread has a group open. A thread always sees its own. */
  static boolean groupsOpen() {
    return (count & (CHANGE - 1)) != 0;
  }
}
