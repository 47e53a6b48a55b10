package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import java.time.Duration;
import java.util.BitSet;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One rank of a world: the order of its operations, what the other ranks may know of it, and what
 * has gone wrong.
 *
 * <p>Operations of one member take turns in the order in which they were launched, on whatever
 * streams they are, since they use the same links.
 */
final class Member {
  private enum Presence {
    HERE,
    /** Its operations are ended, but it may still meet others to make a new world. */
    REVOKED,
    CLOSED,
    ABORTED;

    /** Whether operations were ended without being finished. */
    boolean cut() {
      return this == REVOKED || this == ABORTED;
    }
  }

  private final World world;
  private final int rank;
  private final int size;
  private final Collective collective;
  private final Work single;
  private final AtomicLong launched = new AtomicLong();
  private final AtomicLong ended = new AtomicLong();
  private final Map<Occasion, Long> meetings = new ConcurrentHashMap<>();
  private final Object turns = new Object();
  private volatile int waitingForTurn;
  private volatile Duration timeout = Duration.ofSeconds(30);
  private volatile long timeoutNanos = timeout.toNanos();
  private volatile String name;
  private volatile Presence presence = Presence.HERE;
  private volatile NcclException failure;
  private volatile Patience waiter;

  // What this rank says of the collective that it has entered last; read by other ranks when they
  // have waited for a while. The fields are written before, and kept until after, the counts say
  // so.
  private volatile long entered;
  private volatile long left;
  private volatile int shape;
  private volatile long count;
  private volatile int root;
  private volatile boolean alone;

  Member(World world, int rank, int size) {
    this.world = world;
    this.rank = rank;
    this.size = size;
    this.name = "rank " + rank + " of " + size;
    this.collective = new Collective(this);
    this.single = new Work(this);
  }

  /** Takes the settings of the communicator that is this member's face. */
  void belongTo(CommunicatorConfig config, String communicator) {
    timeout = config.timeout();
    timeoutNanos = Deadline.nanosOf(timeout);
    name = communicator;
  }

  World world() {
    return world;
  }

  int rank() {
    return rank;
  }

  int size() {
    return size;
  }

  long timeoutNanos() {
    return timeoutNanos;
  }

  Collective collective() {
    return collective;
  }

  /** Returns the work that every operation outside a group reuses, one at a time. */
  Work single() {
    return single;
  }

  /** Returns what this rank's next call of a function is for, without counting it. */
  Occasion upcoming(String function, BitSet excluded) {
    Occasion kind = new Occasion(function, excluded, 0);
    return new Occasion(function, excluded, meetings.getOrDefault(kind, 0L));
  }

  /** Returns what this rank's call of a function is for, and counts it. */
  Occasion next(String function, BitSet excluded) {
    Occasion now = upcoming(function, excluded);
    meetings.put(new Occasion(function, excluded, 0), now.number() + 1);
    return now;
  }

  /** Returns the place of a new operation in the order of this member's operations. */
  long takeTicket() {
    return launched.getAndIncrement();
  }

  /** Waits until the operations before this one have ended, or until the member is aborted. */
  void awaitTurn(long ticket, String function) {
    if (ended.get() < ticket) {
      synchronized (turns) {
        waitingForTurn++;
        boolean interrupted = false;
        while (ended.get() < ticket && !presence.cut()) {
          try {
            turns.wait();
          } catch (InterruptedException e) {
            interrupted = true;
          }
        }
        waitingForTurn--;
        if (interrupted) {
          Thread.currentThread().interrupt();
        }
      }
    }
    checkNotAborted(function);
  }

  void endTurn() {
    ended.incrementAndGet();
    if (waitingForTurn > 0) {
      synchronized (turns) {
        turns.notifyAll();
      }
    }
  }

  /** Waits until everything launched has ended; returns whether it has. */
  boolean awaitIdle(Duration limit) {
    Deadline deadline = Deadline.after(limit);
    long target = launched.get();
    boolean interrupted = false;
    synchronized (turns) {
      waitingForTurn++;
      while (ended.get() < target && !deadline.passed()) {
        try {
          turns.wait(deadline.millisLeft(Long.MAX_VALUE));
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
      waitingForTurn--;
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return ended.get() >= target;
  }

  /** Names the thread that waits for this member's links, for peers to wake. */
  void waitsBy(Patience patience) {
    waiter = patience;
  }

  void wake() {
    Patience patience = waiter;
    if (patience != null) {
      patience.wake();
    }
  }

  /**
   * Tells the other ranks which collective this one has come to.
   *
   * @param withoutMessages whether this rank can do nothing else until the collective is done
   */
  @SuppressWarnings("NonAtomicVolatileUpdate") // Whose turn it is writes alone.
  void enter(Call call, boolean withoutMessages) {
    shape = call.shape();
    count = call.count;
    root = call.peer;
    alone = withoutMessages;
    entered = entered + 1;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // Whose turn it is writes alone.
  void leave() {
    left = left + 1;
  }

  /** Returns the number of the collective that this rank has entered last. */
  long entered() {
    return entered;
  }

  /** Leaves the world for good, and releases every wait of this member. */
  void abort() {
    end(Presence.ABORTED);
  }

  /** Releases every wait of this member; it carries no operations any more, but does not leave. */
  void revoke() {
    end(Presence.REVOKED);
  }

  private void end(Presence how) {
    presence = how;
    world.raiseAlarm();
    synchronized (turns) {
      turns.notifyAll();
    }
  }

  /** Leaves the world with everything done. */
  void close() {
    presence = Presence.CLOSED;
    world.raiseAlarm();
  }

  /** Returns whether no operation of this member can be waited for any more. */
  boolean gone() {
    return presence != Presence.HERE;
  }

  /** Returns whether this member will meet nobody any more. */
  boolean left() {
    return presence == Presence.CLOSED || presence == Presence.ABORTED;
  }

  boolean revoked() {
    return presence == Presence.REVOKED;
  }

  private String how() {
    return switch (presence) {
      case ABORTED -> " aborted its communicator";
      case REVOKED -> " ended its operations";
      default -> " closed its communicator";
    };
  }

  void checkNotAborted(String function) {
    if (presence.cut()) {
      throw new CommunicatorAbortedException(function, name);
    }
  }

  /** Throws if this member has been aborted while it waits for a meeting. */
  void checkStays(String function) {
    if (presence == Presence.ABORTED) {
      throw new CommunicatorAbortedException(function, name);
    }
  }

  /** Throws if this member cannot begin an operation, for what has happened before. */
  void checkUsable(String function) {
    checkNotAborted(function);
    if (failure != null) {
      throw new NcclInvalidUsageException(
          function,
          Result.INVALID_USAGE.code(),
          name + " has failed before; abort it",
          failure.getMessage());
    }
    checkFault(function);
  }

  void checkFault(String function) {
    Fault fault = world.fault();
    if (fault != null) {
      throw fault.seenBy(rank, function);
    }
  }

  /**
   * Throws if what was read from another rank's memory may not be what that rank sent: it was
   * released from the operation since.
   */
  void checkSource(int source, String function) {
    checkFault(function);
    checkNotAborted(function);
    Member peer = world.member(source);
    if (peer.presence.cut()) {
      throw Fault.remote(function, "rank " + source + peer.how());
    }
  }

  /** Throws if a rank has gone that the collective still needs. */
  void checkCollectivePeers(String function) {
    long number = entered;
    for (int peer = 0; peer < size; peer++) {
      Member other = world.member(peer);
      if (other.gone() && other.left < number) {
        throw Fault.remote(function, "rank " + peer + other.how());
      }
    }
  }

  /** Throws, on every rank, if a rank has called another collective than this one. */
  void checkCollectiveAgreement(String function) {
    long number = entered;
    for (int peer = 0; peer < size; peer++) {
      Member other = world.member(peer);
      if (other.entered == number) {
        int otherShape = other.shape;
        long otherCount = other.count;
        int otherRoot = other.root;
        // The rank leaves before it says what comes next: what was read is of this collective if
        // the rank has not left it since.
        boolean same = otherShape == shape && otherCount == count && otherRoot == root;
        if (!same && other.left < number) {
          throw mismatch(
              function,
              differ(number, other.rank, Call.describe(otherShape, otherCount, otherRoot)));
        }
      }
    }
  }

  private String differ(long number, int peer, String peersCall) {
    return "collective number %d differs between ranks: rank %d called %s, rank %d called %s"
        .formatted(number, rank, Call.describe(shape, count, root), peer, peersCall);
  }

  /** Tells all ranks that calls differ, and returns what to throw here. */
  NcclException mismatch(String function, String text) {
    Fault fault = Fault.mismatch(rank, text);
    world.raise(fault);
    return fault.seenBy(rank, function);
  }

  /** Returns whether a peer waits in a collective that this rank has not come to. */
  boolean isAheadInCollective(Member peer) {
    return peer.alone && peer.entered > entered && peer.left < peer.entered;
  }

  String describeCollective() {
    return Call.describe(shape, count, root);
  }

  /** Returns the failure of a collective in which nothing has happened for the whole timeout. */
  NcclException collectiveTimeout(String function) {
    long number = entered;
    BitSet missing = new BitSet();
    BitSet stuck = new BitSet();
    for (int peer = 0; peer < size; peer++) {
      Member other = world.member(peer);
      if (other.entered < number) {
        missing.set(peer);
      } else if (other.left < number && peer != rank) {
        stuck.set(peer);
      }
    }
    String call = Call.describe(shape, count, root);
    return missing.isEmpty()
        ? timeout(function, ranks(stuck) + " came to " + call + " but made no progress", stuck)
        : timeout(function, ranks(missing) + " did not call " + call, missing);
  }

  NcclException timeout(String function, String text, BitSet missing) {
    NcclTimeoutException own = new NcclTimeoutException(function, timeout, text);
    world.raise(
        Fault.timeout(
            rank, "not finished after " + timeout.toMillis() / 1000.0 + " s: " + text, missing));
    return own;
  }

  static String ranks(BitSet which) {
    String list = which.toString();
    return (which.cardinality() == 1 ? "rank " : "ranks ") + list.substring(1, list.length() - 1);
  }

  /**
   * Notes that an operation has failed, tells the other ranks, and returns the failure as what the
   * stream reports.
   */
  NcclException fail(String function, Throwable cause) {
    NcclException typed = typed(function, cause);
    if (typed instanceof CommunicatorAbortedException) {
      return typed;
    }
    if (failure == null) {
      failure = typed;
    }
    world.raise(Fault.rankFailed(rank, typed.getMessage()));
    return typed;
  }

  private NcclException typed(String function, Throwable cause) {
    if (cause instanceof NcclException known) {
      return known;
    }
    NcclException typed;
    if (presence.cut()) {
      typed = new CommunicatorAbortedException(function, name);
    } else if (world.fault() != null) {
      typed = world.fault().seenBy(rank, function);
    } else if (cause instanceof IllegalStateException) {
      // The one state that the contract cannot keep: memory that goes while it is used.
      typed =
          new NcclInvalidUsageException(
              function,
              Result.INVALID_USAGE.code(),
              "a buffer was closed while the operation used it",
              String.valueOf(cause.getMessage()));
    } else {
      typed = new NcclException(function, Result.INTERNAL_ERROR.code(), String.valueOf(cause), "");
    }
    typed.initCause(cause);
    return typed;
  }

  /** Returns what has failed here first; a new exception, since each teller may add to its own. */
  Optional<NcclException> ownFailure() {
    NcclException first = failure;
    if (first == null) {
      return Optional.empty();
    }
    NcclException told =
        NcclException.of(first.function(), first.code(), first.text(), first.lastError());
    told.initCause(first);
    return Optional.of(told);
  }

  /** Returns what has failed, here or on another rank. */
  Optional<NcclException> asyncError() {
    if (failure != null) {
      return ownFailure();
    }
    Fault fault = world.fault();
    if (fault != null) {
      return Optional.of(fault.seenBy(rank, "asyncError"));
    }
    for (int peer = 0; peer < size; peer++) {
      Member other = world.member(peer);
      if (other.presence.cut()) {
        return Optional.of(Fault.remote("asyncError", "rank " + peer + other.how()));
      }
    }
    return Optional.empty();
  }

  String departure() {
    return "rank " + rank + how();
  }

  @Override
  public String toString() {
    return name;
  }
}
