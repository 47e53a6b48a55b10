package io.nccl4j.internal.reference.rank;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.FailureDetails;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.internal.reference.collective.CollectiveRunner;
import io.nccl4j.internal.reference.collective.DirectSync;
import io.nccl4j.internal.reference.collective.RankContext;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.schedule.Layout;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * One rank of a world: the order of its operations, what the other ranks may know of it, and what
 * has gone wrong.
 *
 * <p>Operations of one member take turns in the order in which they were launched, on whatever
 * streams they are, since they use the same links.
 */
public final class HostedRank implements RankContext {
  private static final Map<String, Operation> OPERATIONS =
      Arrays.stream(Operation.values())
          .collect(Collectors.toMap(Operation::method, Function.identity()));

  private final CommunicatorState communicator;
  private final int rank;
  private final int size;
  private final CollectiveRunner collective;
  private final RankExecution single;
  private final AtomicLong launched = new AtomicLong();
  private final AtomicLong ended = new AtomicLong();
  private final Map<BootstrapKey, Long> bootstraps = new ConcurrentHashMap<>();
  private final Object turns = new Object();
  private volatile int waitingForTurn;
  private volatile Duration timeout = Duration.ofSeconds(30);
  private volatile long timeoutNanos = timeout.toNanos();
  private volatile String name;
  private volatile NcclException failure;
  private volatile IdleStrategy waiter;

  private final RankState self;

  HostedRank(CommunicatorState world, int rank, int size) {
    this.communicator = world;
    this.rank = rank;
    this.size = size;
    this.self = world.rankState(rank);
    this.name = "rank " + rank + " of " + size;
    this.collective = new CollectiveRunner(this);
    this.single = new RankExecution(this);
  }

  /** Takes the settings of the communicator that is this member's face. */
  public void belongTo(CommunicatorConfig config, String communicator) {
    timeout = config.timeout();
    timeoutNanos = timeout.toNanos();
    name = communicator;
  }

  public CommunicatorState communicator() {
    return communicator;
  }

  @Override
  public int rank() {
    return rank;
  }

  @Override
  public int size() {
    return size;
  }

  @Override
  public AllReduceAlgorithm algorithm() {
    return communicator.options().algorithm();
  }

  @Override
  public Layout layout() {
    return communicator.options().layout();
  }

  @Override
  public boolean inOneProcess() {
    return communicator.inOneProcess();
  }

  @Override
  public boolean allShareMemory() {
    return communicator.allShareMemory();
  }

  @Override
  public SendLink sendLink(Route route, int channel, int to) {
    return communicator.links().sendLink(route, channel, rank, to);
  }

  @Override
  public ReceiveLink receiveLink(Route route, int channel, int from) {
    return communicator.links().receiveLink(route, channel, from, rank);
  }

  @Override
  public DirectSync directSync() {
    return communicator.directSync();
  }

  @Override
  public SharedMemorySync sharedMemorySync() {
    return communicator.links().hostMemory().sync();
  }

  @Override
  public boolean failureSignalled() {
    return communicator.failureSignalled();
  }

  @Override
  public void wake(int peer) {
    communicator.wake(peer);
  }

  @Override
  public long entered() {
    return self.entered();
  }

  @Override
  public Presence presence(int peer) {
    return communicator.presence(peer);
  }

  @Override
  public String describeCollective(int peer) {
    return communicator.rankState(peer).describeCollective();
  }

  @Override
  public String describe(BitSet ranks) {
    return communicator.describe(ranks);
  }

  long timeoutNanos() {
    return timeoutNanos;
  }

  CollectiveRunner collective() {
    return collective;
  }

  /** Returns the work that every operation outside a group reuses, one at a time. */
  RankExecution single() {
    return single;
  }

  /** Returns what this rank's next call of a function is for, without counting it. */
  public BootstrapKey upcoming(String function, BitSet excluded) {
    BootstrapKey kind = new BootstrapKey(function, excluded, 0);
    return new BootstrapKey(function, excluded, bootstraps.getOrDefault(kind, 0L));
  }

  /** Returns what this rank's call of a function is for, and counts it. */
  public BootstrapKey next(String function, BitSet excluded) {
    BootstrapKey now = upcoming(function, excluded);
    bootstraps.put(new BootstrapKey(function, excluded, 0), now.number() + 1);
    return now;
  }

  /** Returns the place of a new operation in the order of this member's operations. */
  public long takeTurnNumber() {
    return launched.getAndIncrement();
  }

  /**
   * Waits until the operations before this one have ended, or until the member is aborted.
   * Allocates nothing: a stream's thread that failed here for want of memory would end a turn that
   * it has not had. An interrupt is kept for later.
   */
  void awaitTurn(long ticket, String function) {
    if (ended.get() < ticket) {
      synchronized (turns) {
        waitingForTurn++;
        boolean interrupted = false;
        while (ended.get() < ticket && !self.presence().cut()) {
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
  public boolean awaitIdle(Duration limit) {
    Deadline deadline = Deadline.after(limit);
    long target = launched.get();
    synchronized (turns) {
      waitingForTurn++;
      Interrupts.awaitUninterruptibly(
          () -> {
            while (ended.get() < target && !deadline.passed()) {
              turns.wait(deadline.remainingMillis());
            }
          });
      waitingForTurn--;
    }
    return ended.get() >= target;
  }

  /** Names the thread that waits for this member's links, for peers to wake. */
  void waitsBy(IdleStrategy patience) {
    waiter = patience;
  }

  void wake() {
    IdleStrategy idle = waiter;
    if (idle != null) {
      idle.wake();
    }
  }

  /** Returns what other ranks know of this one. */
  RankState self() {
    return self;
  }

  /** Leaves the world for good, and releases every wait of this member. */
  public void abort() {
    end(Presence.ABORTED);
  }

  /** Releases every wait of this member; it carries no operations any more, but does not leave. */
  public void revoke() {
    end(Presence.REVOKED);
  }

  private void end(Presence how) {
    self.setPresence(how);
    communicator.announcePresence(self);
    synchronized (turns) {
      turns.notifyAll();
    }
  }

  /** Leaves the world with everything done. */
  public void close() {
    self.setPresence(Presence.CLOSED);
    communicator.announcePresence(self);
  }

  /** Returns what a function throws that waits for others, if this rank was aborted; else null. */
  public CommunicatorAbortedException abortion(String function) {
    return self.presence() == Presence.ABORTED
        ? new CommunicatorAbortedException(function, name)
        : null;
  }

  public boolean revoked() {
    return self.presence() == Presence.REVOKED;
  }

  void checkNotAborted(String function) {
    if (self.presence().cut()) {
      throw new CommunicatorAbortedException(function, name);
    }
  }

  /** Throws if this member cannot begin an operation, for what has happened before. */
  public void checkUsable(String function) {
    checkNotAborted(function);
    if (failure != null) {
      throw new NcclInvalidUsageException(
              function,
              NcclResult.INVALID_USAGE.code(),
              name + " has failed before; abort it",
              failure.getMessage())
          .initDetails(failure.details());
    }
    checkFault(function);
  }

  @Override
  public void checkFault(String function) {
    RankFailure failure = communicator.failure();
    if (failure != null) {
      throw seen(failure, function);
    }
  }

  private NcclException seen(RankFailure fault, String function) {
    return fault.seenBy(rank, function, details(function, fault.failed(), fault.missing()));
  }

  @Override
  public FailureDetails details(String function, BitSet failed, BitSet missing) {
    BitSet left = (BitSet) failed.clone();
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      if (presence(rankOfPeer).left()) {
        left.set(rankOfPeer);
      }
    }
    Operation operation = OPERATIONS.get(function);
    // Only one collective is under way at a time.
    long number = operation == null || operation.pointToPoint() ? 0 : self.passed() + 1;
    return FailureDetails.of(name, within(left), within(missing)).in(operation, number);
  }

  /** Returns those of some ranks that there are; another process may have named others. */
  private BitSet within(BitSet ranks) {
    return ranks.get(0, size);
  }

  @Override
  public void checkSource(int source, String function) {
    checkFault(function);
    checkNotAborted(function);
    if (presence(source).cut()) {
      throw departed(function, source);
    }
  }

  @Override
  public NcclException departed(String function, int peer) {
    // If it went for a fault, its process has reported that before, but maybe after the caller
    // looked.
    RankFailure failure = communicator.failure();
    return failure == null
        ? RankFailure.remote(function, communicator.rankState(peer).departure())
        : seen(failure, function);
  }

  /** Throws if a rank has gone that the collective still needs. */
  void checkCollectivePeers(String function) {
    long number = self.entered();
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      if (presence(rankOfPeer).gone() && communicator.rankState(rankOfPeer).passed() < number) {
        throw departed(function, rankOfPeer);
      }
    }
  }

  @Override
  public boolean mayExplain(String function, int source, long since) {
    checkFault(function);
    checkCollectiveAgreement(function);
    return communicator.mayExplain(source, since);
  }

  /** Throws, on every rank, if a rank has called another collective than this one. */
  void checkCollectiveAgreement(String function) {
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      String other = communicator.rankState(rankOfPeer).otherThan(self);
      if (other != null) {
        throw mismatch(function, differ(self.entered(), rankOfPeer, other));
      }
    }
  }

  private String differ(long number, int peer, String peersCall) {
    return "collective number %d differs between ranks: rank %d called %s, rank %d called %s"
        .formatted(number, rank, self.describeCollective(), peer, peersCall);
  }

  @Override
  public NcclException mismatch(String function, String text) {
    RankFailure failure =
        RankFailure.of(
            rank, RankFailure.Kind.MISMATCH, text, details(function, new BitSet(), new BitSet()));
    communicator.raise(failure);
    return seen(failure, function);
  }

  @Override
  public boolean isAheadInCollective(int other) {
    RankState rankState = communicator.rankState(other);
    return rankState.alone()
        && rankState.entered() > self.entered()
        && rankState.passed() < rankState.entered();
  }

  /**
   * Returns the failure of a collective in which nothing has happened for the whole timeout, or
   * null if no other rank is waited for: the last part came while this process was stopped, say.
   */
  NcclException collectiveTimeout(String function) {
    long number = self.entered();
    BitSet absent = new BitSet();
    BitSet stuck = new BitSet();
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      RankState rankState = communicator.rankState(rankOfPeer);
      if (rankState.entered() < number) {
        absent.set(rankOfPeer);
      } else if (rankState.passed() < number && rankOfPeer != rank) {
        stuck.set(rankOfPeer);
      }
    }
    String call = self.describeCollective();
    BitSet silent = silent();
    if (!silent.isEmpty()) {
      return timeout(
          function, communicator.describe(silent) + " did not answer, while in " + call, silent);
    }
    if (!absent.isEmpty()) {
      return timeout(function, communicator.describe(absent) + " did not call " + call, absent);
    }
    return stuck.isEmpty()
        ? null
        : timeout(
            function,
            communicator.describe(stuck) + " came to " + call + " but made no progress",
            stuck);
  }

  private BitSet silent() {
    BitSet all = new BitSet();
    all.set(0, size);
    return communicator.silent(all, timeoutNanos);
  }

  @Override
  public NcclException timeout(String function, String text, BitSet missing) {
    NcclTimeoutException own = new NcclTimeoutException(function, timeout, text);
    own.initDetails(details(function, new BitSet(), missing));
    communicator.raise(RankFailure.of(rank, RankFailure.Kind.TIMEOUT, own.text(), own.details()));
    return own;
  }

  /**
   * Notes that an operation has failed, tells the other ranks, and returns the failure as what the
   * stream reports.
   */
  public NcclException fail(String function, Throwable cause) {
    if (cause instanceof ProtocolViolationException nonsense) {
      // Every rank is told the same, whoever has found it.
      communicator.fail(
          nonsense.rank(),
          communicator.describe(nonsense.rank()) + " violated the protocol: " + nonsense.what());
    }
    NcclException typed = typed(function, cause);
    if (typed instanceof CommunicatorAbortedException) {
      return typed;
    }
    String text = typed.getMessage();
    BitSet failed = new BitSet();
    // A remote failure is that of the ranks that have left; any other is this rank's own.
    failed.set(rank, !(typed instanceof NcclRemoteException));
    typed.initDetails(details(function, failed, new BitSet()));
    if (failure == null) {
      failure = typed;
    }
    communicator.raise(RankFailure.of(rank, RankFailure.Kind.RANK_FAILED, text, typed.details()));
    return typed;
  }

  private NcclException typed(String function, Throwable cause) {
    // What is told of others may but follow from this rank's own end.
    boolean ownEnd = self.presence().cut() && cause instanceof NcclRemoteException;
    if (!ownEnd && cause instanceof NcclException known) {
      return known;
    }
    NcclException typed;
    if (self.presence().cut()) {
      typed = new CommunicatorAbortedException(function, name);
    } else if (communicator.failure() != null) {
      typed = seen(communicator.failure(), function);
    } else if (cause instanceof IllegalStateException) {
      // The one state that the contract cannot keep: memory that goes while it is used.
      typed =
          new NcclInvalidUsageException(
              function,
              NcclResult.INVALID_USAGE.code(),
              "a buffer was closed while the operation used it",
              String.valueOf(cause.getMessage()));
    } else {
      typed =
          new NcclException(function, NcclResult.INTERNAL_ERROR.code(), String.valueOf(cause), "");
    }
    typed.initCause(cause);
    return typed;
  }

  /** Returns what has failed here first, with the ranks that have left until now. */
  public Optional<NcclException> ownFailure() {
    NcclException first = failure;
    if (first == null) {
      return Optional.empty();
    }
    FailureDetails then = first.details();
    FailureDetails now =
        details(
            first.function(), RankSets.of(then.failedRanks()), RankSets.of(then.missingRanks()));
    return Optional.of(
        NcclException.copyOf(first, now.in(then.operation(), then.sequenceNumber())));
  }

  /** Returns what has failed, here or on another rank. */
  public Optional<NcclException> asyncError() {
    if (failure != null) {
      return ownFailure();
    }
    RankFailure failure = communicator.failure();
    if (failure != null) {
      return Optional.of(seen(failure, "asyncError"));
    }
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      if (presence(rankOfPeer).cut()) {
        return Optional.of(
            departed("asyncError", rankOfPeer)
                .initDetails(details("asyncError", new BitSet(), new BitSet())));
      }
    }
    return Optional.empty();
  }

  @Override
  public String toString() {
    return name;
  }
}
