package io.nccl4j.reference;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.Origin;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.Doorway;
import io.nccl4j.internal.reference.bootstrap.Gathering;
import io.nccl4j.internal.reference.bootstrap.Growth;
import io.nccl4j.internal.reference.bootstrap.Meeting;
import io.nccl4j.internal.reference.bootstrap.Occasion;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.Site;
import io.nccl4j.internal.reference.reduce.Operator;
import io.nccl4j.internal.util.Deadline;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
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
public final class ReferenceCommunicator extends Communicator {
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

  private final ReferenceBackend backend;
  private final Site site;
  private final List<Operator> operators = new ArrayList<>();
  private volatile boolean aborted;
  private volatile Member member;
  private volatile Meeting meeting;
  private Entry entry;
  // That of the id that this rank made last.
  private volatile Growth growth;

  /** Makes the end of a rank that will meet the others by a unique id. */
  ReferenceCommunicator(
      ReferenceBackend backend,
      Site site,
      UniqueId id,
      int size,
      int rank,
      int device,
      CommunicatorConfig config) {
    super(backend, config, device, rank, size, Origin.init(List.of(id)));
    this.backend = backend;
    this.site = site;
    this.entry = deadline -> visit(Gathering.CONNECT, id, size, rank, deadline);
  }

  /** Makes the end of a rank that comes from a meeting. */
  private ReferenceCommunicator(
      ReferenceBackend backend, Site site, CommunicatorConfig config, int device, Origin origin) {
    super(backend, config, device, -1, -1, origin);
    this.backend = backend;
    this.site = site;
  }

  /** Makes the end of a new rank of a communicator that grows. */
  static ReferenceCommunicator joining(
      ReferenceBackend backend,
      Site site,
      UniqueId id,
      int newSize,
      int rank,
      int device,
      CommunicatorConfig config) {
    ReferenceCommunicator made =
        new ReferenceCommunicator(backend, site, config, device, Origin.join(id));
    made.entry = deadline -> made.visit(Occasion.GROW, id, newSize, rank, deadline);
    return made;
  }

  /** Makes the end of a rank of this communicator in one that is made of it. */
  private ReferenceCommunicator child(
      CommunicatorConfig childConfig, Origin origin, Function<ReferenceCommunicator, Entry> way) {
    ReferenceCommunicator made =
        new ReferenceCommunicator(backend, site, childConfig, device(), origin);
    made.entry = way.apply(made);
    return made;
  }

  /** Comes by an id. */
  private Participant visit(String function, UniqueId id, int size, int rank, Deadline deadline) {
    Doorway.Visitor visitor = new Doorway.Visitor(size, rank, backend.options().toString(), null);
    Meeting here = Gathering.of(site, id, function, visitor).admit(visitor, deadline);
    return participant(here, rank, null, deadline);
  }

  /** Comes from another communicator. */
  private Participant meet(Meeting here, Member self, int color, int key, Deadline deadline) {
    here.arrive(new Meeting.Wish(self.rank(), color, key, site.location()));
    return participant(here, self.rank(), self, deadline);
  }

  private Participant participant(Meeting here, int rank, Member self, Deadline deadline) {
    meeting = here;
    String name = self == null ? toString() : self.toString();
    return new Participant(here, rank, name, deadline, () -> abortion(here, self));
  }

  /** Returns what ends the wait of a rank that was aborted, here or where it comes from. */
  private CommunicatorAbortedException abortion(Meeting here, Member self) {
    if (aborted) {
      return new CommunicatorAbortedException(here.function(), toString());
    }
    return self == null ? null : self.abortion(here.function());
  }

  @Override
  protected void connect() {
    Participant participant = entry.arrive(Deadline.after(config().timeout()));
    Member place = World.join(participant, site, backend.options());
    entry = null;
    meeting = null;
    if (place == null) {
      return;
    }
    place(place.rank(), place.size());
    place.belongTo(config(), toString());
    synchronized (this) {
      member = place;
      if (aborted) {
        place.abort();
      }
    }
  }

  // A call is counted only when it meets the others: one that its group forgets must not set the
  // ranks apart.

  @Override
  protected Communicator newSplit(int color, int key, CommunicatorConfig childConfig) {
    int wanted = color == NO_COLOR ? Meeting.NO_COLOR : color;
    return child(
        childConfig,
        Origin.split(this, color),
        made ->
            deadline -> {
              Occasion now = member.next(Occasion.SPLIT, new BitSet());
              return made.meet(
                  member.world().meetings().meeting(now), member, wanted, key, deadline);
            });
  }

  @Override
  protected Communicator newShrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    BitSet excluded = new BitSet();
    excludedRanks.forEach(excluded::set);
    return child(
        childConfig,
        Origin.shrink(this, excludedRanks),
        made ->
            deadline -> {
              if (mode == ShrinkMode.ABORT_FIRST) {
                markRevoked();
                member.revoke();
              } else {
                finishOperations(Occasion.SHRINK);
              }
              Occasion now = member.next(Occasion.SHRINK, excluded);
              return made.meet(member.world().meetings().meeting(now), member, 0, rank(), deadline);
            });
  }

  @Override
  protected UniqueId createGrowId() {
    finishOperations(Occasion.GROW);
    Growth upcoming = growth(member.upcoming(Occasion.GROW, new BitSet()));
    UniqueId id = upcoming.newId(rank());
    Growth last = growth;
    if (last != null) {
      // A grow that failed leaves its id open, for new ranks that are late to find the failure.
      last.closeId();
    }
    growth = upcoming;
    return id;
  }

  @Override
  protected Communicator newGrown(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    return child(
        childConfig,
        Origin.grow(this, id),
        made ->
            deadline -> {
              finishOperations(Occasion.GROW);
              useGrowId(id);
              Growth now = growth(member.next(Occasion.GROW, new BitSet()));
              return made.meet(now.meeting(newSize), member, 0, rank(), deadline);
            });
  }

  private Growth growth(Occasion occasion) {
    return member.world().meetings().growth(occasion);
  }

  private void finishOperations(String function) {
    awaitStreams(function);
    member.checkUsable(function);
  }

  /** Returns this end's place among the ranks. */
  Member member() {
    return member;
  }

  @Override
  protected void launch(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    // Nothing here would break, but the program would on NCCL, which notices by the same means.
    if ((int) INSIDE.getOpaque(this) != 0) {
      throw new IllegalStateException(
          this + " is in use by another thread; one thread at a time may use a communicator");
    }
    INSIDE.setOpaque(this, 1);
    try {
      ((ReferenceStream) stream).launch(member, operation, send, recv, count, operator(op), peer);
    } finally {
      // No call, which could overflow the stack where the operation has.
      inside = 0;
    }
  }

  /** Returns what an operator means, to be used also after it was closed; null for null. */
  Operator operator(ReduceOp op) {
    if (op == null) {
      return null;
    }
    int code = op.code();
    if (code < Operator.FIRST_CREATED) {
      return Operator.standard(code);
    }
    synchronized (operators) {
      return operators.get(code - Operator.FIRST_CREATED);
    }
  }

  @Override
  protected void checkFloat8(Operation operation, DataType type) {
    // The reference moves and reduces every type.
  }

  @Override
  protected Object world() {
    return member.world();
  }

  @Override
  protected int createOperator(DataType type, double scalar) {
    return add(Operator.mulsum(type, scalar));
  }

  @Override
  protected int createOperator(Buffer scalar) {
    return add(Operator.mulsum(scalar.pointer()));
  }

  private int add(Operator operator) {
    synchronized (operators) {
      int free = operators.indexOf(null);
      if (free < 0) {
        free = operators.size();
        operators.add(null);
      }
      operators.set(free, operator);
      return free + Operator.FIRST_CREATED;
    }
  }

  @Override
  protected void destroyOperator(int code) {
    synchronized (operators) {
      operators.set(code - Operator.FIRST_CREATED, null);
    }
  }

  @Override
  protected Optional<NcclException> findAsyncError() {
    return member.asyncError();
  }

  @Override
  protected void abortConnection() {
    Member place;
    synchronized (this) {
      aborted = true;
      place = member;
    }
    if (place != null) {
      place.abort();
      forgetGrowth();
    } else {
      Meeting now = meeting;
      if (now != null) {
        now.wake();
      }
    }
  }

  private void forgetGrowth() {
    Growth last = growth;
    if (last != null) {
      last.forget();
    }
  }

  @Override
  protected void closeConnection() {
    Member place = member;
    if (place == null) {
      return;
    }
    forgetGrowth();
    if (place.revoked()) {
      place.abort();
      return;
    }
    boolean idle = place.awaitIdle(timeout());
    NcclException failed =
        idle
            ? place.ownFailure().orElse(null)
            : new NcclTimeoutException(
                    "close", timeout(), "operations of " + this + " were pending; they are aborted")
                .initDetails(lastEnqueued());
    if (failed != null) {
      markAborted();
      place.abort();
      throw failed;
    }
    place.close();
  }
}
