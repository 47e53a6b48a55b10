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
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.StreamDriver;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.SortedSet;
import java.util.function.Function;

/**
 * One rank's end of a communicator whose ranks are threads of one or several processes.
 *
 * <p>Operations run in the order of the calls, also on different streams. A wait inside an
 * operation ends when nothing has happened for the configured timeout, when this rank is aborted,
 * or when a rank that it needs has failed, has left, or has called something else; then every rank
 * is told, and the communicator is good for nothing but to be aborted or closed.
 */
public final class ReferenceCommunicator implements CommunicatorDriver {
  /** How a rank comes to the others. */
  private interface Entry {
    /** Comes to a meeting. */
    Participant arrive(Deadline deadline);
  }

  private static final VarHandle INSIDE;

  static {
    try {
      INSIDE =
          MethodHandles.lookup().findVarHandle(ReferenceCommunicator.class, "inside", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("UnusedVariable") // Through INSIDE.
  private int inside;

  private final CommunicatorContext context;
  private final RankOptions options;
  private final ProcessEndpoint endpoint;
  private final List<ReductionOp> operators = new ArrayList<>();
  private volatile boolean aborted;
  private volatile HostedRank hostedRank;
  private volatile Bootstrap bootstrap;
  private Entry entry;
  // That of the id that this rank made last.
  private volatile GrowBootstrap growBootstrap;

  private ReferenceCommunicator(
      CommunicatorContext context, RankOptions options, ProcessEndpoint site) {
    this.context = context;
    this.options = options;
    this.endpoint = site;
  }

  /** Makes the end of a rank that will meet the others by a unique id. */
  static ReferenceCommunicator joiningById(
      CommunicatorContext context,
      RankOptions options,
      ProcessEndpoint site,
      String function,
      UniqueId id) {
    ReferenceCommunicator made = new ReferenceCommunicator(context, options, site);
    int size = context.size();
    int rank = context.rank();
    made.entry = deadline -> made.joinById(function, id, size, rank, deadline);
    return made;
  }

  /** Makes the end of a rank of this communicator in one that is made of it. */
  private ReferenceCommunicator child(
      CommunicatorContext child, Function<ReferenceCommunicator, Entry> way) {
    ReferenceCommunicator made = new ReferenceCommunicator(child, options, endpoint);
    made.entry = way.apply(made);
    return made;
  }

  /** Comes by an id. */
  private Participant joinById(
      String function, UniqueId id, int size, int rank, Deadline deadline) {
    BootstrapTarget.JoinRequest request =
        new BootstrapTarget.JoinRequest(size, rank, options.text(), null);
    Bootstrap here = InitBootstrap.of(endpoint, id, function, request).admit(request, deadline);
    return participant(here, rank, null, deadline);
  }

  /** Comes from another communicator. */
  private Participant joinBootstrap(
      Bootstrap here, HostedRank self, int color, int key, Deadline deadline) {
    here.arrive(new Bootstrap.MembershipRequest(self.rank(), color, key, endpoint.address()));
    return participant(here, self.rank(), self, deadline);
  }

  private Participant participant(Bootstrap here, int rank, HostedRank self, Deadline deadline) {
    bootstrap = here;
    String name = self == null ? toString() : self.toString();
    return new Participant(here, rank, name, deadline, () -> abortion(here, self));
  }

  /** Returns what ends the wait of a rank that was aborted, here or where it comes from. */
  private CommunicatorAbortedException abortion(Bootstrap here, HostedRank self) {
    if (aborted) {
      return new CommunicatorAbortedException(here.function(), toString());
    }
    return self == null ? null : self.abortion(here.function());
  }

  @Override
  public void connect() {
    Participant participant = entry.arrive(Deadline.after(context.config().timeout()));
    HostedRank mine = CommunicatorState.join(participant, endpoint, options);
    entry = null;
    bootstrap = null;
    if (mine == null) {
      return;
    }
    context.setRank(mine.rank(), mine.size());
    mine.belongTo(context.config(), toString());
    synchronized (this) {
      hostedRank = mine;
      if (aborted) {
        mine.abort();
      }
    }
  }

  // A call is counted only when it meets the others: one that its group forgets must not set the
  // ranks apart.

  @Override
  public CommunicatorDriver split(int color, int key, CommunicatorContext child) {
    int wanted = color == NO_COLOR ? Bootstrap.NO_COLOR : color;
    return child(
        child,
        made ->
            deadline -> {
              BootstrapKey now = hostedRank.next(BootstrapKey.SPLIT, new BitSet());
              return made.joinBootstrap(
                  hostedRank.communicator().bootstraps().bootstrap(now),
                  hostedRank,
                  wanted,
                  key,
                  deadline);
            });
  }

  @Override
  public CommunicatorDriver shrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorContext child) {
    BitSet excluded = new BitSet();
    excludedRanks.forEach(excluded::set);
    return child(
        child,
        made ->
            deadline -> {
              if (mode == ShrinkMode.ABORT_FIRST) {
                context.markRevoked();
                hostedRank.revoke();
              } else {
                finishOperations(BootstrapKey.SHRINK);
              }
              BootstrapKey now = hostedRank.next(BootstrapKey.SHRINK, excluded);
              return made.joinBootstrap(
                  hostedRank.communicator().bootstraps().bootstrap(now),
                  hostedRank,
                  0,
                  context.rank(),
                  deadline);
            });
  }

  @Override
  public UniqueId newGrowId() {
    finishOperations(BootstrapKey.GROW);
    GrowBootstrap upcoming = growBootstrap(hostedRank.upcoming(BootstrapKey.GROW, new BitSet()));
    UniqueId id = upcoming.newId(context.rank());
    GrowBootstrap last = growBootstrap;
    if (last != null) {
      // A grow that failed leaves its id open, for new ranks that are late to find the failure.
      last.closeId();
    }
    growBootstrap = upcoming;
    return id;
  }

  @Override
  public CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child) {
    return child(
        child,
        made ->
            deadline -> {
              finishOperations(BootstrapKey.GROW);
              context.useGrowId(id);
              GrowBootstrap now = growBootstrap(hostedRank.next(BootstrapKey.GROW, new BitSet()));
              return made.joinBootstrap(
                  now.bootstrap(newSize), hostedRank, 0, context.rank(), deadline);
            });
  }

  private GrowBootstrap growBootstrap(BootstrapKey occasion) {
    return hostedRank.communicator().bootstraps().growBootstrap(occasion);
  }

  private void finishOperations(String function) {
    context.awaitStreams(function);
    hostedRank.checkUsable(function);
  }

  /** Returns this end's place among the ranks. */
  public HostedRank hostedRank() {
    return hostedRank;
  }

  @Override
  public void launch(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      StreamDriver stream) {
    // Nothing here would break, but the program would on NCCL, which notices by the same means.
    if ((int) INSIDE.getOpaque(this) != 0) {
      throw new IllegalStateException(
          this + " is in use by another thread; one thread at a time may use a communicator");
    }
    INSIDE.setOpaque(this, 1);
    try {
      ((ReferenceStream) stream)
          .launch(hostedRank, operation, send, recv, count, operator(op), peer);
    } finally {
      // No call, which could overflow the stack where the operation has.
      inside = 0;
    }
  }

  /** Returns what an operator means, to be used also after it was closed; null for none. */
  ReductionOp operator(int code) {
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
    // The reference moves and reduces every type.
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
  public Optional<NcclException> asyncError() {
    return hostedRank.asyncError();
  }

  @Override
  public void abort() {
    HostedRank mine;
    synchronized (this) {
      aborted = true;
      mine = hostedRank;
    }
    if (mine != null) {
      mine.abort();
      forgetGrowth();
    } else {
      Bootstrap now = bootstrap;
      if (now != null) {
        now.wake();
      }
    }
  }

  private void forgetGrowth() {
    GrowBootstrap last = growBootstrap;
    if (last != null) {
      last.forget();
    }
  }

  @Override
  public void close() {
    HostedRank mine = hostedRank;
    if (mine == null) {
      return;
    }
    forgetGrowth();
    if (mine.revoked()) {
      mine.abort();
      return;
    }
    Duration timeout = context.config().timeout();
    boolean idle = mine.awaitIdle(timeout);
    NcclException failed =
        idle
            ? mine.ownFailure().orElse(null)
            : new NcclTimeoutException(
                    "close", timeout, "operations of " + this + " were pending; they are aborted")
                .initDetails(context.lastEnqueued());
    if (failed != null) {
      context.markAborted();
      mine.abort();
      throw failed;
    }
    mine.close();
  }

  @Override
  public String toString() {
    return context.toString();
  }
}
