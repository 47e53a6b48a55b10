package io.nccl4j.internal.reference.rank;

import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.collective.PointToPoint;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.spi.Awaited;
import java.util.ArrayList;
import java.util.List;

/**
 * The execution of one operation or one group on a rank: its collectives one after the other, and
 * its point-to-point messages at the same time.
 */
public final class RankExecution {
  /** The time without progress after which the progress of remote ranks is requested. */
  private static final long STATUS_REQUEST_NANOS = 20_000_000;

  private final HostedRank hostedRank;
  private final List<Call> collectives = new ArrayList<>();
  private final PointToPoint messages;
  private long turnNumber;
  // Whether its turn has begun; before, another execution may be using the rank's collective.
  private boolean hasTurn;
  private int next;
  private boolean inCollective;
  private boolean inMessages;
  // The function of the part being advanced: a group may have both messages and collectives.
  private String function = "";
  private Throwable failure;

  public RankExecution(HostedRank hostedRank, List<Call> calls) {
    this.hostedRank = hostedRank;
    this.messages = new PointToPoint(hostedRank, Route.MESSAGES);
    calls.forEach(this::add);
  }

  private void add(Call call) {
    function = call.operation().method();
    if (call.operation().pointToPoint()) {
      addMessage(call);
    } else {
      collectives.add(call);
    }
  }

  private void addMessage(Call call) {
    long signature = PointToPoint.signature(call.type(), call.count());
    messages.reportAs(function);
    if (call.send() != null) {
      messages.send(call.peer(), call.send(), 0, call.bytes(), signature);
    } else {
      messages.receive(call.peer(), call.recv(), 0, call.bytes(), signature);
    }
  }

  /** Takes this execution's place in the order of the rank's operations. */
  public void takeTurn() {
    turnNumber = hostedRank.takeTurnNumber();
  }

  /**
   * Runs executions of several ranks together, in the thread of a stream; returns the first
   * failure, or null.
   *
   * @param begun runs when the turn of each has started
   */
  public static Throwable run(
      List<RankExecution> executions, Runnable begun, IdleStrategy idleStrategy) {
    Throwable thrown = null;
    try {
      executions.forEach(execution -> execution.begin(idleStrategy));
      begun.run();
      drive(executions, idleStrategy);
    } catch (RuntimeException | Error e) {
      thrown = e;
      executions.forEach(execution -> execution.failUnlessDone(e));
    }
    Throwable first = null;
    for (RankExecution execution : executions) {
      Throwable failure = execution.end();
      first = first == null ? failure : first;
    }
    return first == null ? thrown : first;
  }

  /** Waits for the turn of this execution and starts it. */
  void begin(IdleStrategy idleStrategy) {
    try {
      hostedRank.awaitTurn(turnNumber, function);
      hasTurn = true;
      inMessages = !messages.isEmpty();
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

  private void failUnlessDone(Throwable cause) {
    if (!done()) {
      fail(cause);
    }
  }

  /** Ends the turn, so that the next operation can start; returns the failure, or null. */
  Throwable end() {
    try {
      if (hasTurn) {
        hostedRank.collective().end(failure != null);
      }
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
    function = call.operation().method();
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
        throwTimeout();
      }
    }
    if (inMessages) {
      function = messages.function();
      if (idleNanos > 0) {
        messages.checkAgreement();
      }
      messages.checkPeers();
      if (late) {
        throwTimeout();
      }
    }
  }

  private void throwTimeout() {
    Awaited awaited = awaited();
    if (awaited != null) {
      throw hostedRank.timeout(function, awaited.text(), awaited.ranks());
    }
  }

  private Awaited awaited() {
    Awaited awaited = inCollective ? hostedRank.awaitedByCollective() : messages.awaited();
    if (awaited == null) {
      return null;
    }
    // A rank that is behind may itself wait for one that does not answer.
    Awaited silent =
        hostedRank.silent(inCollective ? hostedRank.self().describeCollective() : function);
    return silent == null ? awaited : silent;
  }

  /**
   * Drives the executions of several ranks until all of them are done or have failed. After a pause
   * they advance before they are checked: if this process was stopped meanwhile, they may be late
   * although what they wait for has arrived.
   */
  private static void drive(List<RankExecution> executions, IdleStrategy idleStrategy) {
    idleStrategy.reset();
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
