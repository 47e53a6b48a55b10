package io.nccl4j.internal.reference.rank;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.collective.PointToPoint;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.util.MemoryShortage;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * One member's share of what a stream does at once: its collectives one after the other, and at the
 * same time its messages. A single operation is reused; a group makes one for each of its members.
 */
public final class RankExecution {
  /** How long nothing happens before ranks of other processes are asked how far they are. */
  private static final long ASKING_NANOS = 20_000_000;

  private final HostedRank hostedRank;
  private final Call only = new Call();
  private List<Call> more = List.of();
  private final PointToPoint messages;
  private boolean hasOnly;
  private int next;
  private boolean inCollective;
  private boolean inMessages;
  // Of the part that is being advanced: a group may have both messages and collectives.
  private String function = "";
  private Throwable failure;

  public RankExecution(HostedRank member) {
    this.hostedRank = member;
    this.messages = new PointToPoint(member, Route.MESSAGES);
  }

  HostedRank hostedRank() {
    return hostedRank;
  }

  /** Makes this the work of one operation. */
  private void setOnly(Call call) {
    function = call.operation.method();
    hasOnly = !call.operation.pointToPoint();
    if (hasOnly) {
      only.copy(call);
    } else {
      addMessage(call);
    }
  }

  /** Adds an operation of a group. */
  public void add(Call call) {
    function = call.operation.method();
    if (call.operation.pointToPoint()) {
      addMessage(call);
      return;
    }
    if (more.isEmpty()) {
      more = new ArrayList<>();
    }
    more.add(call);
  }

  private void addMessage(Call call) {
    DataType type = call.type;
    long signature = PointToPoint.signature(type, call.count);
    messages.reportAs(function);
    if (call.send != null) {
      messages.send(call.peer, call.send, 0, call.bytes(), signature);
    } else {
      messages.receive(call.peer, call.recv, 0, call.bytes(), signature);
    }
  }

  /**
   * Waits for the turn of one operation, then does it; returns what has failed, or null.
   *
   * @param hasMore whether more is about to follow it, when it has ended
   * @param begun runs when its turn has come
   * @param one room for one piece of work
   */
  public static Throwable runOnly(
      HostedRank member,
      long ticket,
      Call call,
      BooleanSupplier hasMore,
      Runnable begun,
      IdleStrategy patience,
      RankExecution[] one) {
    try {
      // Only whose turn it is may touch the reused work.
      member.awaitTurn(ticket, call.operation.method());
    } catch (RuntimeException | Error e) {
      member.endTurn();
      return e;
    }
    RankExecution work = member.single();
    work.failure = null;
    Throwable failed = null;
    try {
      work.setOnly(call);
      begun.run();
      work.start(patience);
      one[0] = work;
      patience.begin(member.size(), member.communicator().inOneProcess());
      drive(one, patience);
    } catch (RuntimeException | Error e) {
      work.fail(e);
    } finally {
      // Without its end no later operation would have a turn.
      failed = work.end(hasMore.getAsBoolean());
      one[0] = null;
    }
    return failed;
  }

  /** Waits for the turn of a group's work and gets it ready. */
  public void begin(long ticket, IdleStrategy patience) {
    try {
      hostedRank.awaitTurn(ticket, function);
      start(patience);
    } catch (RuntimeException | Error e) {
      failure = e;
    }
  }

  private void start(IdleStrategy patience) {
    failure = null;
    next = 0;
    inCollective = false;
    inMessages = !messages.isEmpty();
    try {
      hostedRank.waitsBy(patience);
      hostedRank.checkUsable(function);
    } catch (RuntimeException | Error e) {
      fail(e);
    }
  }

  /**
   * Fails this work and reports that to the other ranks. While there is no memory for the report,
   * it is repeated: they would otherwise wait for this rank until their time-out.
   */
  private void fail(Throwable cause) {
    failure = cause;
    long since = System.nanoTime();
    while (true) {
      try {
        failure = hostedRank.fail(function, cause);
        return;
      } catch (OutOfMemoryError shortage) {
        MemoryShortage.pause(shortage, since);
      }
    }
  }

  /** Fails this work as well as those that progress together with it. */
  public void failUnlessDone(Throwable cause) {
    if (!done()) {
      fail(cause);
    }
  }

  /**
   * Gives the turn to the next operation; returns what has failed, or null.
   *
   * @param soon whether more is about to follow, which may use the same buffers
   */
  public Throwable end(boolean soon) {
    try {
      if (failure != null && inCollective) {
        hostedRank.collective().withdraw();
      }
      if (failure != null || !soon) {
        hostedRank.collective().forget();
      }
      messages.clear();
      only.clear();
      hasOnly = false;
    } finally {
      hostedRank.endTurn();
    }
    return failure;
  }

  boolean done() {
    return failure != null
        || (!inMessages && !inCollective && next == more.size() + (hasOnly ? 1 : 0));
  }

  /** Does what can be done without waiting; returns whether that was anything. */
  boolean advance() {
    try {
      return advanceOrThrow();
    } catch (RuntimeException | Error e) {
      fail(e);
      return true;
    }
  }

  private boolean advanceOrThrow() {
    hostedRank.checkNotAborted(function);
    boolean moved = false;
    if (inMessages) {
      function = messages.function();
      moved = messages.advance();
      inMessages = !messages.done();
    }
    if (!inCollective && next < more.size() + (hasOnly ? 1 : 0)) {
      startCollective(hasOnly ? only : more.get(next));
      next++;
      moved = true;
    }
    if (inCollective) {
      function = hostedRank.collective().function();
      moved |= hostedRank.collective().advance();
      if (hostedRank.collective().done()) {
        inCollective = false;
        hostedRank.self().pass();
        moved = true;
      }
    }
    return moved;
  }

  private void startCollective(Call call) {
    function = call.operation.method();
    inCollective = true;
    hostedRank.self().enter(call, !inMessages);
    hostedRank.collective().start(call);
  }

  /** Looks for what may keep this work from ever going on, and fails it then. */
  void checkForFailure(long idleNanos) {
    if (done() || (idleNanos == 0 && !hostedRank.communicator().failureSignalled())) {
      return;
    }
    try {
      lookOrThrow(idleNanos);
    } catch (RuntimeException | Error e) {
      fail(e);
    }
  }

  private void lookOrThrow(long idleNanos) {
    hostedRank.checkNotAborted(function);
    hostedRank.checkFault(function);
    if (idleNanos > ASKING_NANOS) {
      hostedRank.communicator().ask();
    }
    boolean late = idleNanos > hostedRank.timeoutNanos();
    if (inCollective) {
      function = hostedRank.collective().function();
      if (idleNanos > 0) {
        hostedRank.checkCollectiveAgreement(function);
      }
      hostedRank.checkCollectivePeers(function);
      if (late) {
        throwUnlessNull(hostedRank.collectiveTimeout(function));
      }
    }
    if (inMessages) {
      function = messages.function();
      if (idleNanos > 0) {
        messages.checkAgreement();
      }
      messages.checkPeers();
      if (late) {
        throwUnlessNull(messages.timeout());
      }
    }
  }

  private static void throwUnlessNull(NcclException failure) {
    if (failure != null) {
      throw failure;
    }
  }

  /** Sees to several members' work until all of it is done or has failed. */
  public static void drive(RankExecution[] works, IdleStrategy patience) {
    while (true) {
      boolean moved = false;
      boolean done = true;
      for (RankExecution work : works) {
        if (!work.done()) {
          moved |= work.advance();
          done &= work.done();
        }
      }
      if (done) {
        return;
      }
      if (moved) {
        patience.reset();
      } else {
        long idle = patience.pause();
        for (RankExecution work : works) {
          work.checkForFailure(idle);
        }
      }
    }
  }
}
