package io.nccl4j.internal.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.GrowBootstrap;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CallCount;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.FailureDetails;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * One rank of a communicator whose ranks are threads of one or several processes.
 *
 * <p>Operations run in the order of the calls, also on different streams. A wait inside an
 * operation ends when there was no progress for the configured timeout, when this rank is aborted,
 * or when a rank that it needs has failed, has left, or has called another operation. Every rank is
 * then notified, and the communicator can only be aborted or closed.
 */
public final class ReferenceCommunicator implements CommunicatorDriver {
  /** The way in which a rank joins a bootstrap. */
  private interface Entry {
    Participant arrive(Deadline deadline);
  }

  // Whether a thread is launching an operation.
  private final AtomicBoolean inUse = new AtomicBoolean();
  private final CommunicatorContext context;
  private final RankOptions options;
  private final ProcessEndpoint endpoint;
  private final List<ReductionOp> operators = new ArrayList<>();
  private volatile boolean aborted;
  private volatile HostedRank hostedRank;
  private volatile Bootstrap bootstrap;
  private Entry entry;
  // The rank of the parent, if this is the child of a shrink.
  private HostedRank shrinking;
  // The grow of the last id that this rank created.
  private volatile GrowBootstrap growBootstrap;

  private ReferenceCommunicator(
      CommunicatorContext context, RankOptions options, ProcessEndpoint endpoint) {
    this.context = context;
    this.options = options;
    this.endpoint = endpoint;
  }

  /** Creates the communicator of a rank that joins by a unique id. */
  static ReferenceCommunicator joiningById(
      CommunicatorContext context,
      RankOptions options,
      ProcessEndpoint endpoint,
      String function,
      UniqueId id) {
    ReferenceCommunicator created = new ReferenceCommunicator(context, options, endpoint);
    int size = context.size();
    int rank = context.rank();
    created.entry = deadline -> created.joinById(function, id, size, rank, deadline);
    return created;
  }

  /** Creates the communicator of this rank in a child of this communicator. */
  private ReferenceCommunicator child(
      CommunicatorContext child, Function<ReferenceCommunicator, Entry> entryOf) {
    ReferenceCommunicator created = new ReferenceCommunicator(child, options, endpoint);
    created.entry = entryOf.apply(created);
    return created;
  }

  /** Joins by an id. */
  private Participant joinById(
      String function, UniqueId id, int size, int rank, Deadline deadline) {
    BootstrapTarget.JoinRequest request =
        new BootstrapTarget.JoinRequest(size, rank, options.text(), null);
    Bootstrap joined = InitBootstrap.of(endpoint, id, function, request).admit(request, deadline);
    return participant(joined, rank, null, deadline);
  }

  /** Joins a bootstrap of this communicator. */
  private Participant joinBootstrap(
      Bootstrap joined, HostedRank self, int color, int key, Deadline deadline) {
    joined.arrive(new Bootstrap.MembershipRequest(self.rank(), color, key, endpoint.address()));
    return participant(joined, self.rank(), self, deadline);
  }

  private Participant participant(Bootstrap joined, int rank, HostedRank self, Deadline deadline) {
    bootstrap = joined;
    String name = self == null ? toString() : self.toString();
    return new Participant(joined, rank, name, deadline, () -> abortedException(joined, self));
  }

  /** Returns the exception of a rank that was aborted, here or in its parent; else null. */
  private CommunicatorAbortedException abortedException(Bootstrap joined, HostedRank self) {
    if (aborted) {
      return new CommunicatorAbortedException(joined.function(), toString());
    }
    return self == null ? null : self.abortedException(joined.function());
  }

  @Override
  public void connect() {
    HostedRank connected = null;
    try {
      Participant participant = entry.arrive(Deadline.after(context.timeout()));
      connected = CommunicatorState.join(participant, endpoint, options);
    } finally {
      if (shrinking != null) {
        shrinking.endShrink(connected != null);
      }
    }
    entry = null;
    bootstrap = null;
    if (connected == null) {
      return;
    }
    context.setRank(connected.rank(), connected.size());
    connected.configure(context.timeout(), toString());
    synchronized (this) {
      hostedRank = connected;
      if (aborted) {
        connected.abort();
      }
    }
  }

  // A call is counted only when it joins the bootstrap: a call that its group discards must not
  // make the counts of the ranks differ.

  @Override
  public CommunicatorDriver split(int color, int key, CommunicatorContext child) {
    int wanted = color == NO_COLOR ? Bootstrap.NO_COLOR : color;
    return child(
        child,
        created ->
            deadline -> {
              BootstrapKey now = hostedRank.next(BootstrapKey.SPLIT, new BitSet());
              return created.joinBootstrap(
                  hostedRank.communicator().bootstraps().bootstrap(now),
                  hostedRank,
                  wanted,
                  key,
                  deadline);
            });
  }

  @Override
  public Optional<Set<Integer>> lostRanks() {
    BitSet lost = hostedRank.communicator().lostRanks(context.timeout());
    return Optional.of(lost.stream().boxed().collect(Collectors.toSet()));
  }

  @Override
  public CommunicatorDriver shrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorContext child) {
    BitSet excluded = new BitSet();
    excludedRanks.forEach(excluded::set);
    return child(
        child,
        created ->
            deadline -> {
              boolean afterFailure = mode == ShrinkMode.ABORT_FIRST;
              if (afterFailure) {
                context.markRevoked();
                hostedRank.revoke();
              } else {
                finishOperations(BootstrapKey.SHRINK);
              }
              BootstrapKey now = hostedRank.next(BootstrapKey.SHRINK, excluded);
              Bootstrap joined = hostedRank.communicator().bootstraps().bootstrap(now);
              if (afterFailure) {
                created.shrinking = hostedRank;
                hostedRank.beginShrink(
                    excluded, created.participant(joined, context.rank(), hostedRank, deadline));
              }
              return created.joinBootstrap(joined, hostedRank, 0, context.rank(), deadline);
            });
  }

  @Override
  public UniqueId newGrowId() {
    finishOperations(BootstrapKey.GROW);
    GrowBootstrap upcoming = growBootstrap(hostedRank.upcoming(BootstrapKey.GROW, new BitSet()));
    UniqueId id = upcoming.newId(context.rank());
    GrowBootstrap last = growBootstrap;
    if (last != null) {
      // A failed grow leaves its id open, so that late new ranks see the failure.
      last.closeId();
    }
    growBootstrap = upcoming;
    return id;
  }

  @Override
  public CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child) {
    return child(
        child,
        created ->
            deadline -> {
              finishOperations(BootstrapKey.GROW);
              context.useGrowId(id);
              GrowBootstrap now = growBootstrap(hostedRank.next(BootstrapKey.GROW, new BitSet()));
              return created.joinBootstrap(
                  now.bootstrap(newSize), hostedRank, 0, context.rank(), deadline);
            });
  }

  private GrowBootstrap growBootstrap(BootstrapKey key) {
    return hostedRank.communicator().bootstraps().growBootstrap(key);
  }

  private void finishOperations(String function) {
    context.awaitStreams(function);
    hostedRank.checkUsable(function);
  }

  /** Returns the rank, once connected. */
  public HostedRank hostedRank() {
    return hostedRank;
  }

  /** Launches a call that nothing has to progress together with. */
  void launch(EnqueuedCall call) {
    GroupLaunch.checkSelfMessages(hostedRank, GroupLaunch.selfSends(call, hostedRank));
    // Harmless here, but such a program would fail on NCCL; both backends detect it alike.
    if (!inUse.compareAndSet(false, true)) {
      throw new IllegalStateException(
          this + " is in use by another thread; one thread at a time may use a communicator");
    }
    try {
      ((ReferenceStream) call.streamDriver())
          .launch(List.of(new RankExecution(hostedRank, List.of(call(call)))));
    } finally {
      inUse.set(false);
    }
  }

  /** Returns a call with its operator and its memory. */
  Call call(EnqueuedCall call) {
    return Call.of(
        call.operation(),
        call.sendMemory(),
        call.recvMemory(),
        call.count(),
        operator(call.operator()),
        call.peer());
  }

  /** Returns an operator, which stays usable after it was closed; null for none. */
  private ReductionOp operator(int code) {
    if (code < 0) {
      return null;
    }
    if (code < ReductionOp.FIRST_CREATED) {
      return ReductionOp.standard(code);
    }
    synchronized (operators) {
      return operators.get(code - ReductionOp.FIRST_CREATED);
    }
  }

  @Override
  public void checkFloat8(Operation operation, DataType type) {
    // The reference backend supports every type.
  }

  @Override
  public Object communicatorKey() {
    return hostedRank.communicator();
  }

  @Override
  public int createOperator(DataType type, double scalar) {
    return add(ReductionOp.mulsum(type, scalar));
  }

  @Override
  public int createOperator(BufferMemory scalar) {
    return add(ReductionOp.mulsum(scalar.pointer()));
  }

  private int add(ReductionOp operator) {
    synchronized (operators) {
      int free = operators.indexOf(null);
      if (free < 0) {
        free = operators.size();
        operators.add(null);
      }
      operators.set(free, operator);
      return free + ReductionOp.FIRST_CREATED;
    }
  }

  @Override
  public void destroyOperator(int code) {
    synchronized (operators) {
      operators.set(code - ReductionOp.FIRST_CREATED, null);
    }
  }

  @Override
  public Optional<Awaited> awaited(Operation operation, Supplier<CallCount> calls) {
    return Optional.ofNullable(hostedRank.awaited());
  }

  @Override
  public Optional<NcclException> asyncError() {
    return hostedRank.asyncError();
  }

  @Override
  public void abort() {
    HostedRank connected;
    synchronized (this) {
      aborted = true;
      connected = hostedRank;
    }
    if (connected != null) {
      connected.abort();
      forgetGrowBootstrap();
    } else {
      Bootstrap now = bootstrap;
      if (now != null) {
        now.wake();
      }
    }
  }

  private void forgetGrowBootstrap() {
    GrowBootstrap last = growBootstrap;
    if (last != null) {
      last.forget();
    }
  }

  @Override
  public void close() {
    HostedRank connected = hostedRank;
    if (connected == null) {
      return;
    }
    forgetGrowBootstrap();
    if (connected.revoked()) {
      connected.abort();
      return;
    }
    Duration timeout = context.timeout();
    boolean idle = connected.awaitIdle(timeout);
    NcclException failed =
        idle
            ? connected.ownFailure().orElseGet(() -> connected.mismatch("close"))
            : stillPending(connected);
    if (failed != null) {
      context.markAborted();
      connected.abort();
      throw failed;
    }
    connected.close();
  }

  /** Returns the failure of a close that timed out because of an operation. */
  private NcclException stillPending(HostedRank connected) {
    FailureDetails last = context.lastEnqueued();
    Awaited silent = connected.silent("an operation before the close");
    if (silent != null) {
      // Reported to the other ranks before the abort, which they would take for the cause.
      FailureDetails details = connected.details("close", new BitSet(), silent.ranks());
      return connected.timeout("close", silent.text(), details.in(null, last.sequenceNumber()));
    }
    String text = "operations of " + this + " were pending; they are aborted";
    return Contract.get()
        .initDetails(new NcclTimeoutException("close", context.timeout(), text), last);
  }

  @Override
  public String toString() {
    return context.toString();
  }
}
