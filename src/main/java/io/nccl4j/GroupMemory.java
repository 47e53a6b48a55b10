package io.nccl4j;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Checks that no operation of a group writes memory that another one reads or writes. NCCL
 * guarantees no order between them, since it runs them on different channels at the same time.
 *
 * <p>The check sorts the boundaries of all ranges and sweeps over them once. It searches for the
 * two operations only after it has found a conflict.
 */
final class GroupMemory {
  /** The kinds of boundaries; at the same address, a range ends before another begins. */
  private static final int READ_ENDS = 0;

  private static final int WRITE_ENDS = 1;
  private static final int READ_BEGINS = 2;
  private static final int WRITE_BEGINS = 3;

  /**
   * The low bits of a boundary hold its kind; the address is shifted, since its top bits are
   * unused.
   */
  private static final int KIND_BITS = 2;

  /**
   * Memory that one operation uses, for messages.
   *
   * @param number the operation's position in the group, from 1
   */
  private record Use(int number, Call call, Buffer buffer, String argument, boolean written) {
    boolean conflictsWith(Use other) {
      return (written || other.written) && sharedBytes(other) > 0;
    }

    private long sharedFrom(Use other) {
      return Math.max(buffer.memory().address(), other.buffer.memory().address());
    }

    private long sharedBytes(Use other) {
      long end = buffer.memory().address() + buffer.byteSize();
      long otherEnd = other.buffer.memory().address() + other.buffer.byteSize();
      return Math.min(end, otherEnd) - sharedFrom(other);
    }

    @Override
    public String toString() {
      return "operation %d, %s of %s, %s %s, %s"
          .formatted(
              number,
              call.method(),
              call.communicator(),
              written ? "writes" : "reads",
              argument,
              buffer);
    }
  }

  // Most calls read one range and write another.
  private static final int BOUNDARIES_PER_CALL = 4;

  private long[] boundaries;
  private int count;

  private GroupMemory(int calls) {
    boundaries = new long[BOUNDARIES_PER_CALL * calls];
  }

  /**
   * Throws if two calls share memory that one of them writes.
   *
   * @param calls the calls of a group, each already checked on its own
   * @throws IllegalArgumentException if two calls conflict; the message names both
   */
  static void check(List<Call> calls) {
    if (new GroupMemory(calls.size()).findsConflict(calls)) {
      throwFirst(calls);
    }
  }

  private boolean findsConflict(List<Call> calls) {
    for (int i = 0; i < calls.size(); i++) {
      addReads(calls.get(i));
      addRange(written(calls, i), WRITE_BEGINS, WRITE_ENDS);
    }
    Arrays.sort(boundaries, 0, count);
    return hasConflict();
  }

  /**
   * Returns the buffer that a call writes, or null. A receive from this rank itself writes nothing
   * if the matching send has the same memory.
   */
  private static Buffer written(List<Call> calls, int index) {
    Buffer written = calls.get(index).writes();
    CommunicatorCore communicator = calls.get(index).communicator();
    if (!calls.get(index).isWithItself(Operation.RECV, communicator)) {
      return written;
    }
    // Sends and receives match in the order of the calls.
    int before = 0;
    for (int i = 0; i < index; i++) {
      before += calls.get(i).isWithItself(Operation.RECV, communicator) ? 1 : 0;
    }
    for (int i = 0; i < calls.size(); i++) {
      if (calls.get(i).isWithItself(Operation.SEND, communicator) && before-- == 0) {
        return same(calls.get(i).reads(), written) ? null : written;
      }
    }
    return written;
  }

  private static boolean same(Buffer one, Buffer other) {
    return one.memory().address() == other.memory().address() && one.byteSize() == other.byteSize();
  }

  /**
   * Adds the memory that a call reads and does not write itself: in-place operations are allowed.
   */
  private void addReads(Call call) {
    Buffer read = call.reads();
    Buffer written = call.writes();
    if (read != null && written != null && overlap(read, written)) {
      long start = read.memory().address();
      long cut = written.memory().address();
      add(start, cut, READ_BEGINS, READ_ENDS);
      add(cut + written.byteSize(), start + read.byteSize(), READ_BEGINS, READ_ENDS);
    } else {
      addRange(read, READ_BEGINS, READ_ENDS);
    }
    addRange(call.scalar(), READ_BEGINS, READ_ENDS);
  }

  private void addRange(Buffer buffer, int begins, int ends) {
    if (buffer != null) {
      long start = buffer.memory().address();
      add(start, start + buffer.byteSize(), begins, ends);
    }
  }

  private void add(long start, long end, int begins, int ends) {
    if (start >= end) {
      return;
    }
    if (count + 2 > boundaries.length) {
      boundaries = Arrays.copyOf(boundaries, 2 * boundaries.length);
    }
    boundaries[count++] = start << KIND_BITS | begins;
    boundaries[count++] = end << KIND_BITS | ends;
  }

  private static boolean overlap(Buffer one, Buffer other) {
    return one.overlaps(one.byteSize(), other, other.byteSize());
  }

  private boolean hasConflict() {
    int reads = 0;
    int writes = 0;
    for (int i = 0; i < count; i++) {
      switch ((int) boundaries[i] & (1 << KIND_BITS) - 1) {
        case READ_ENDS -> reads--;
        case WRITE_ENDS -> writes--;
        case READ_BEGINS -> reads++;
        default -> writes++;
      }
      if (writes > 1 || (writes == 1 && reads > 0)) {
        return true;
      }
    }
    return false;
  }

  private static void throwFirst(List<Call> calls) {
    List<Use> earlier = new ArrayList<>();
    for (int i = 0; i < calls.size(); i++) {
      List<Use> uses = uses(calls, i);
      for (Use one : earlier) {
        for (Use other : uses) {
          if (one.conflictsWith(other)) {
            throw new IllegalArgumentException(
                "operations of one group have no order, so one must not write what another one uses: %s, and %s; they share %d bytes at 0x%x; end the group between them"
                    .formatted(one, other, one.sharedBytes(other), one.sharedFrom(other)));
          }
        }
      }
      earlier.addAll(uses);
    }
  }

  private static List<Use> uses(List<Call> calls, int index) {
    int number = index + 1;
    Call call = calls.get(index);
    List<Use> uses = new ArrayList<>();
    Buffer written = written(calls, index);
    if (written != null) {
      uses.add(new Use(number, call, written, "recv", true));
    }
    if (call.reads() != null) {
      String argument = call.operation() == null ? "source" : "send";
      uses.add(new Use(number, call, call.reads(), argument, false));
    }
    if (call.scalar() != null) {
      uses.add(new Use(number, call, call.scalar(), "op's scalar", false));
    }
    return uses;
  }
}
