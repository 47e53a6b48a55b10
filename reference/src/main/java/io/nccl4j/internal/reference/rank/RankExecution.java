package io.nccl4j.internal.reference.rank;

import io.nccl4j.DataType;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.collective.PointToPoint;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.spi.Awaited;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * The execution of one operation or one group on a rank: its collectives one after the other, and
 * its point-to-point messages at the same time. Single operations reuse one object per rank; a
 * group creates one for each of its ranks.
 */
public final class RankExecution {
  /** The time without progress after which the progress of remote ranks is requested. */
  private static final long STATUS_REQUEST_NANOS = 20_000_000;

  private final HostedRank hostedRank;
  // Has room for a single operation, which then allocates nothing.
  private final List<Call> collectives = new ArrayList<>(1);
  private final PointToPoint messages;
  // Whether its turn has begun; before, another execution may be using the rank's collective. Stays
  // set in the execution that single operations reuse, which is used only in their turns.
  private boolean hasTurn;
  private int next;
  private boolean inCollective;
  private boolean inMessages;
  // The function of the part being advanced: a group may have both messages and collectives.
  private String function = "";
  private Throwable failure;

  public RankExecution(HostedRank hostedRank) {
    this.hostedRank = hostedRank;
    this.messages = new PointToPoint(hostedRank, Route.MESSAGES);
  }

  HostedRank hostedRank() {
    return hostedRank;
  }

  /** Adds an operation, which must not change until this execution has ended. */
  public void add(Call call) {
    function = call.operation.method();
    if (call.operation.pointToPoint()) {
      addMessage(call);
    } else {
      collectives.add(call);
    }
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
   * Waits for the turn of one operation and runs it; returns its failure, or null.
   *
   * @param hasMore returns, once it has ended, whether another operation is about to follow
   * @param begun runs when its turn has started
   * @param slot an array of length 1, reused by the caller
   */
  public static Throwable runOnly(
      HostedRank hostedRank,
      long turnNumber,
      Call call,
      BooleanSupplier hasMore,
      Runnable begun,
      IdleStrategy idleStrategy,
      RankExecution[] slot) {
    try {
      // Only the operation whose turn it is may use the shared execution.
      hostedRank.awaitTurn(turnNumber, call.operation.method());
    } catch (RuntimeException | Error e) {
      hostedRank.endTurn();
      return e;
    }
    RankExecution execution = hostedRank.single();
    execution.failure = null;
    Throwable failed = null;
    try {
      execution.add(call);
      begun.run();
      execution.start(idleStrategy);
      slot[0] = execution;
      idleStrategy.begin(hostedRank.size(), hostedRank.communicator().inOneProcess());
      drive(slot, idleStrategy);
    } catch (RuntimeException | Error e) {
      execution.fail(e);
    } finally {
      // Otherwise no later operation would have a turn.
      failed = execution.end(hasMore.getAsBoolean());
      slot[0] = null;
    }
    return failed;
  }

  /** Waits for the turn of a group on this rank and starts it. */
  public void begin(long turnNumber, IdleStrategy idleStrategy) {
    try {
      hostedRank.awaitTurn(turnNumber, function);
      start(idleStrategy);
    } catch (RuntimeException | Error e) {
      failure = e;
    }
  }

  private void start(IdleStrategy idleStrategy) {
    hasTurn = true;
    failure = null;
    next = 0;
    inCollective = false;
    inMessages = !messages.isEmpty();
    try {
      hostedRank.setWaiter(idleStrategy);
      hostedRank.checkUsable(function);
    } catch (RuntimeException | Error e) {
      fail(e);
    }
  }

  /** Fails this execution and reports that to the other ranks. */
  private void fail(Throwable cause) {
    failure = cause;
    failure = hostedRank.fail(function, cause);
  }

  /** Fails this execution unless it is done, after a failure of the thread that drives it. */
  public void failUnlessDone(Throwable cause) {
    if (!done()) {
      fail(cause);
    }
  }

  /**
   * Ends the turn, so that the next operation can start; returns the failure, or null.
   *
   * @param hasMore whether another operation is about to follow, which may use the same buffers
   */
  public Throwable end(boolean hasMore) {
    try {
      collectives.clear();
      if (failure != null && inCollective) {
        hostedRank.collective().withdraw();
      }
      if (hasTurn && (failure != null || !hasMore)) {
        hostedRank.collective().forget();
      }
      messages.clear();
    } finally {
      hostedRank.endTurn();
    }
    return failure;
  }

  boolean done() {
    return failure != null || (!inMessages && !inCollective && next == collectives.size());
  }

  /** Advances without blocking; returns whether there was progress. */
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
    if (!inCollective && next < collectives.size()) {
      startCollective(collectives.get(next));
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

  /** Fails this execution if something prevents its progress. */
  void checkForFailure(long idleNanos) {
    if (done() || (idleNanos == 0 && !hostedRank.communicator().failureSignalled())) {
      return;
    }
    try {
      checkOrThrow(idleNanos);
    } catch (RuntimeException | Error e) {
      fail(e);
    }
  }

  private void checkOrThrow(long idleNanos) {
    hostedRank.checkNotAborted(function);
    hostedRank.checkFault(function);
    if (idleNanos > STATUS_REQUEST_NANOS) {
      hostedRank.communicator().requestStatus();
      hostedRank.answer(this::awaited);
    }
    boolean late = idleNanos > hostedRank.timeoutNanos();
    if (inCollective) {
      function = hostedRank.collective().function();
      hostedRank.checkCollectiveAgreement(function);
      hostedRank.checkCollectivePeers(function);
      if (late) {
        throwTimeout(awaited());
      }
    }
    if (inMessages) {
      function = messages.function();
      if (idleNanos > 0) {
        messages.checkAgreement();
      }
      messages.checkPeers();
      if (late) {
        throwTimeout(messages.awaited());
      }
    }
  }

  private void throwTimeout(Awaited awaited) {
    if (awaited != null) {
      throw hostedRank.timeout(function, awaited.text(), awaited.ranks());
    }
  }

  private Awaited awaited() {
    return inCollective ? hostedRank.awaitedByCollective() : messages.awaited();
  }

  /**
   * Drives the executions of several ranks until all of them are done or have failed. After a pause
   * they advance before they are checked: if this process was stopped meanwhile, they may be late
   * although what they wait for has arrived.
   */
  public static void drive(RankExecution[] executions, IdleStrategy idleStrategy) {
    long idle = 0;
    while (true) {
      boolean moved = false;
      boolean done = true;
      for (RankExecution execution : executions) {
        if (!execution.done()) {
          moved |= execution.advance();
          done &= execution.done();
        }
      }
      if (done) {
        return;
      }
      if (moved) {
        idleStrategy.reset();
        idle = 0;
      } else {
        for (RankExecution execution : executions) {
          execution.checkForFailure(idle);
        }
        idle = idleStrategy.pause();
      }
    }
  }
}
