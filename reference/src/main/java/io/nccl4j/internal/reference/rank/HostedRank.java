package io.nccl4j.internal.reference.rank;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.internal.reference.collective.CollectiveRunner;
import io.nccl4j.internal.reference.collective.DirectSync;
import io.nccl4j.internal.reference.collective.RankContext;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.schedule.Layout;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * One rank of a communicator, hosted by this process: the order of its operations, its state as the
 * other ranks see it, and its failures.
 *
 * <p>The operations of a rank run one at a time in launch order, whatever their streams, since they
 * use the same links.
 */
public final class HostedRank implements RankContext {
  private static final Map<String, Operation> OPERATIONS =
      Arrays.stream(Operation.values())
          .collect(Collectors.toMap(Operation::method, Function.identity()));

  /** How long a thread may take that waits in an operation to say what for. */
  private static final long ANSWER_MILLIS = 100;

  private final CommunicatorState communicator;
  private final int rank;
  private final int size;
  private final CollectiveRunner collective;
  private final Map<BootstrapKey, Long> bootstraps = new ConcurrentHashMap<>();
  private final Object turns = new Object();
  // The numbers of launched and of ended operations; guarded by turns.
  private long launched;
  private long ended;
  private volatile Duration timeout = Duration.ofSeconds(30);
  private volatile long timeoutNanos = timeout.toNanos();
  private volatile String name;
  // The numbers of the states of all ranks' shrinks when this rank's last shrink ended, or null.
  private volatile long[] knownShrinks;
  private volatile NcclException failure;
  private volatile IdleStrategy waiter;
  private final AtomicReference<CompletableFuture<Awaited>> question = new AtomicReference<>();

  private final RankState self;

  HostedRank(CommunicatorState communicator, int rank, int size) {
    this.communicator = communicator;
    this.rank = rank;
    this.size = size;
    this.self = communicator.rankState(rank);
    this.name = "rank " + rank + " of " + size;
    this.collective = new CollectiveRunner(this);
  }

  /** Applies the timeout and the name of the communicator that the application sees. */
  public void configure(Duration communicatorTimeout, String communicatorName) {
    timeout = communicatorTimeout;
    timeoutNanos = timeout.toNanos();
    name = communicatorName;
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
  public boolean failureSignalled() {
    return communicator.failureSignalled();
  }

  @Override
  public void wake(int peer) {
    communicator.wake(peer);
  }

  /** Returns the number of the collective that this rank has entered last. */
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

  /** Returns the key of this rank's next call of a function, without counting the call. */
  public BootstrapKey upcoming(String function, BitSet excluded) {
    BootstrapKey kind = new BootstrapKey(function, excluded, 0);
    return new BootstrapKey(function, excluded, bootstraps.getOrDefault(kind, 0L));
  }

  /** Returns the key of this rank's call of a function, and counts the call. */
  public BootstrapKey next(String function, BitSet excluded) {
    BootstrapKey now = upcoming(function, excluded);
    bootstraps.put(new BootstrapKey(function, excluded, 0), now.number() + 1);
    return now;
  }

  /**
   * Notifies the other ranks of the ranks that an aborting shrink of this rank excludes.
   *
   * @throws NcclException if another rank is known to exclude other ranks
   */
  public void beginShrink(BitSet excluded, Participant participant) {
    communicator.beginShrink(self, excluded, participant);
  }

  /** Notifies the other ranks of the end of the shrink. */
  public void endShrink(boolean done) {
    if (self.shrink().pending()) {
      knownShrinks = communicator.shrinkNumbers();
      communicator.setShrink(
          self,
          done ? RankState.ShrinkPhase.DONE : RankState.ShrinkPhase.NONE,
          self.shrink().excluded());
    }
  }

  /** Returns whether a shrink of another rank was known when this rank's last one ended. */
  boolean knew(RankState other) {
    long[] known = knownShrinks;
    return known != null && other.shrink().number() <= known[other.rank()];
  }

  /** Returns the number of a new operation in the order of this rank's operations. */
  long takeTurnNumber() {
    synchronized (turns) {
      return launched++;
    }
  }

  /** Waits until the operations before this one have ended, or until this rank is aborted. */
  void awaitTurn(long turnNumber, String function) {
    synchronized (turns) {
      Interrupts.awaitUninterruptibly(
          () -> {
            while (ended < turnNumber && !self.presence().cut()) {
              turns.wait();
            }
          });
    }
    checkNotAborted(function);
  }

  void endTurn() {
    synchronized (turns) {
      ended++;
      turns.notifyAll();
    }
  }

  /** Waits until all launched operations have ended; returns whether they have. */
  public boolean awaitIdle(Duration limit) {
    Deadline deadline = Deadline.after(limit);
    synchronized (turns) {
      long target = launched;
      Interrupts.awaitUninterruptibly(
          () -> {
            while (ended < target && !deadline.passed()) {
              turns.wait(deadline.remainingMillis());
            }
          });
      return ended >= target;
    }
  }

  /** Sets the idle strategy of the thread that waits for this rank's links, for peers to wake. */
  void setWaiter(IdleStrategy idleStrategy) {
    waiter = idleStrategy;
  }

  void wake() {
    IdleStrategy idle = waiter;
    if (idle != null) {
      idle.wake();
    }
  }

  /** Returns the state of this rank as other ranks see it. */
  RankState self() {
    return self;
  }

  /** Leaves the communicator, and ends every wait of this rank. */
  public void abort() {
    end(Presence.ABORTED);
  }

  /** Ends every wait of this rank; it runs no more operations, but does not leave. */
  public void revoke() {
    end(Presence.REVOKED);
  }

  private void end(Presence how) {
    synchronized (turns) {
      // An abort by another thread may come first.
      if (!self.presence().left()) {
        self.setPresence(how);
      }
    }
    communicator.announcePresence(self);
    synchronized (turns) {
      turns.notifyAll();
    }
  }

  /** Leaves the communicator after its operations have ended. */
  public void close() {
    self.setPresence(Presence.CLOSED);
    communicator.announcePresence(self);
  }

  /** Returns the exception that a waiting function throws if this rank was aborted, else null. */
  public CommunicatorAbortedException abortedException(String function) {
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

  /** Throws if this rank cannot start an operation because of an earlier failure or abort. */
  public void checkUsable(String function) {
    checkNotAborted(function);
    if (failure != null) {
      NcclException again =
          Contract.get()
              .failure(
                  function,
                  NcclResult.INVALID_USAGE.code(),
                  name + " has failed before; abort it",
                  failure.getMessage());
      throw Contract.get().initDetails(again, Contract.get().details(failure));
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
    // Not ranks that have closed: they have completed their part, or are named by departed().
    BitSet left = ranksThat(presence -> presence == Presence.ABORTED || presence == Presence.LOST);
    // Read after the presences: a rank that leaves after a failure leaves because of it.
    RankFailure cause = communicator.failure();
    if (cause != null) {
      left = ranksThat(presence -> presence == Presence.LOST);
      left.or(cause.failed());
    }
    left.or(failed);
    Operation operation = OPERATIONS.get(function);
    // Only one collective runs at a time.
    long number = operation == null || operation.pointToPoint() ? 0 : self.passed() + 1;
    return FailureDetails.of(name, existing(left), existing(missing)).in(operation, number);
  }

  private BitSet ranksThat(Predicate<Presence> condition) {
    BitSet ranks = new BitSet();
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      ranks.set(rankOfPeer, condition.test(presence(rankOfPeer)));
    }
    return ranks;
  }

  /** Returns the ranks that exist; another process may have named others. */
  private BitSet existing(BitSet ranks) {
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
    // If it left because of a failure, its process has reported that first, but possibly after the
    // caller checked.
    RankFailure failure = communicator.failure();
    return failure == null
        ? Contract.get()
            .initDetails(
                RankFailure.remote(function, communicator.rankState(peer).departure()),
                details(function, RankSets.of(peer), new BitSet()))
        : seen(failure, function);
  }

  /** Throws if a rank that the collective still needs has left. */
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

  /** Throws, on every rank, if the collectives of a rank differ from those of this one. */
  void checkCollectiveAgreement(String function) {
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      RankState.Difference found = communicator.rankState(rankOfPeer).differenceFrom(self);
      if (found != null) {
        throw mismatch(function, found);
      }
    }
  }

  /**
   * Returns the failure of this rank, which is idle and about to close, if its collectives differ
   * from those of another one, else null. The last of two such ranks to close always learns of the
   * other's last collective.
   */
  public NcclException mismatch(String function) {
    // Before: of two ranks that do this at the same time, at least one has the other's last state.
    self.setClosing();
    communicator.awaitReports();
    for (int rankOfPeer = 0; rankOfPeer < size; rankOfPeer++) {
      RankState state = communicator.rankState(rankOfPeer);
      RankState.Difference found = state.differenceFrom(self);
      found = found == null ? state.surplus(self) : found;
      if (found != null) {
        return mismatch(function, found);
      }
    }
    return null;
  }

  private NcclException mismatch(String function, RankState.Difference found) {
    FailureDetails details = details(function, new BitSet(), new BitSet());
    return mismatch(function, found.text(), details.in(found.operation(), found.number()));
  }

  @Override
  public NcclException mismatch(String function, String text) {
    return mismatch(function, text, details(function, new BitSet(), new BitSet()));
  }

  private NcclException mismatch(String function, String text, FailureDetails details) {
    RankFailure failure = RankFailure.of(rank, RankFailure.Kind.MISMATCH, text, details);
    communicator.raise(failure);
    return seen(failure, function);
  }

  @Override
  public boolean isAheadInCollective(int other) {
    RankState rankState = communicator.rankState(other);
    // Read in this order, since the rank may continue: once it has written 'alone' for a later
    // collective, it has passed this one.
    long number = rankState.entered();
    return number > self.entered() && rankState.alone() && rankState.passed() < number;
  }

  /** Returns the ranks whose processes do not answer while this rank is in a call, or null. */
  public Awaited silent(String call) {
    BitSet all = new BitSet();
    all.set(0, size);
    BitSet silent = communicator.silent(all, timeoutNanos);
    return silent.isEmpty()
        ? null
        : new Awaited(communicator.describe(silent) + " did not answer, while in " + call, silent);
  }

  /** Returns what a collective without progress waits for, if all processes answer. */
  Awaited awaitedByCollective() {
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
    if (!absent.isEmpty()) {
      return new Awaited(communicator.describe(absent) + " did not call " + call, absent);
    }
    return new Awaited(
        stuck.isEmpty()
            ? "all other ranks have completed " + call + ", but their data did not arrive"
            : communicator.describe(stuck) + " called " + call + " but made no progress",
        stuck);
  }

  /**
   * Returns what this rank's operation waits for; null if there is none, or its thread does not
   * answer, because it makes progress or is slow.
   */
  public Awaited awaited() {
    CompletableFuture<Awaited> asked = new CompletableFuture<>();
    question.set(asked);
    return Interrupts.getUninterruptibly(
        () -> {
          try {
            return asked.get(ANSWER_MILLIS, TimeUnit.MILLISECONDS);
          } catch (TimeoutException progresses) {
            return null;
          } catch (ExecutionException e) {
            throw new IllegalStateException(e);
          }
        });
  }

  /** Answers {@link #awaited}; called by the thread that drives this rank's operation. */
  void answer(Supplier<Awaited> awaited) {
    if (question.get() != null) {
      CompletableFuture<Awaited> asked = question.getAndSet(null);
      if (asked != null) {
        asked.complete(awaited.get());
      }
    }
  }

  NcclException timeout(String function, String text, BitSet missing) {
    return timeout(function, text, details(function, new BitSet(), missing));
  }

  /** Reports a time-out to all ranks; returns the exception to throw. */
  public NcclException timeout(String function, String text, FailureDetails details) {
    NcclTimeoutException own = new NcclTimeoutException(function, timeout, text);
    Contract.get().initDetails(own, details);
    communicator.raise(RankFailure.of(rank, RankFailure.Kind.TIMEOUT, own.text(), details));
    return own;
  }

  /**
   * Records that an operation has failed, notifies the other ranks, and returns the exception that
   * the stream reports.
   */
  public NcclException fail(String function, Throwable cause) {
    if (cause instanceof ProtocolViolationException violation) {
      // Every rank reports the same, whichever rank has found it.
      communicator.fail(
          violation.rank(),
          communicator.describe(violation.rank()) + " violated the protocol: " + violation.what());
    }
    NcclException typed = typed(function, cause);
    if (typed instanceof CommunicatorAbortedException) {
      return typed;
    }
    // A remote failure is that of the ranks that have left; any other is this rank's own.
    boolean remote = typed instanceof NcclRemoteException;
    RankFailure.Kind kind = remote ? RankFailure.Kind.REMOTE : RankFailure.Kind.RANK_FAILED;
    String text = remote ? typed.text() : typed.getMessage();
    BitSet failed = new BitSet();
    failed.set(rank, !remote);
    Contract.get().initDetails(typed, details(function, failed, new BitSet()));
    if (failure == null) {
      failure = typed;
    }
    communicator.raise(RankFailure.of(rank, kind, text, Contract.get().details(typed)));
    return typed;
  }

  private NcclException typed(String function, Throwable cause) {
    // A remote failure may be only a consequence of this rank's own abort or revocation.
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
      // The one state that the contract cannot guard: memory that is closed while it is used.
      typed =
          Contract.get()
              .failure(
                  function,
                  NcclResult.INVALID_USAGE.code(),
                  "a buffer was closed while the operation used it",
                  String.valueOf(cause.getMessage()));
    } else {
      typed =
          Contract.get()
              .failure(function, NcclResult.INTERNAL_ERROR.code(), String.valueOf(cause), "");
    }
    typed.initCause(cause);
    return typed;
  }

  /** Returns the first failure of this rank, with the ranks that were lost until now. */
  public Optional<NcclException> ownFailure() {
    NcclException first = failure;
    if (first == null) {
      return Optional.empty();
    }
    FailureDetails then = Contract.get().details(first);
    FailureDetails now =
        details(
            first.function(), RankSets.of(then.failedRanks()), RankSets.of(then.missingRanks()));
    return Optional.of(
        Contract.get().copyOf(first, now.in(then.operation(), then.sequenceNumber())));
  }

  /** Returns the failure of this or another rank, if there is one. */
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
        return Optional.of(departed("asyncError", rankOfPeer));
      }
    }
    return Optional.empty();
  }

  @Override
  public String toString() {
    return name;
  }
}
