package io.nccl4j.reference;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.SortedSet;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * One rank's end of a communicator whose ranks are threads of this process.
 *
 * <p>Operations run in the order of the calls, also on different streams. A wait inside an
 * operation ends when nothing has happened for the configured timeout, when this rank is aborted,
 * or when a rank that it needs has failed, has left, or has called something else; then every rank
 * is told, and the communicator is good for nothing but to be aborted or closed.
 */
public final class ReferenceCommunicator extends Communicator {
  /** How this end finds its place among the ranks. */
  private interface Entry {
    /** Waits for the other ranks; returns null where this rank is to have no place. */
    Member await();

    /** Makes the wait look whether this end was aborted. */
    void wake();
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
  private final List<Operator> operators = new ArrayList<>();
  private volatile boolean aborted;
  private volatile Member member;
  private volatile Entry entry;
  // That of the id that this rank made last.
  private volatile Growth growth;

  /** Makes the end of a rank that will meet the others by a unique id. */
  ReferenceCommunicator(
      ReferenceBackend backend,
      UniqueId id,
      int size,
      int rank,
      int device,
      CommunicatorConfig config) {
    super(backend, config, device, rank, size);
    this.backend = backend;
    this.entry =
        new Entry() {
          private volatile Gathering gathering;

          @Override
          public Member await() {
            gathering = Gathering.enter(id, size, rank, backend.options());
            return gathering.await(
                rank, config.timeout(), () -> aborted, ReferenceCommunicator.this.toString());
          }

          @Override
          public void wake() {
            Gathering now = gathering;
            if (now != null) {
              now.wake();
            }
          }
        };
  }

  /** Makes the end of a rank that comes from a meeting. */
  private ReferenceCommunicator(
      ReferenceBackend backend, CommunicatorConfig config, int device, Meet meet) {
    super(backend, config, device, -1, -1);
    this.backend = backend;
    this.entry =
        new Entry() {
          private volatile Meeting meeting;

          @Override
          public Member await() {
            return meet.join(
                now -> meeting = now, config.timeout(), () -> ReferenceCommunicator.this.aborted);
          }

          @Override
          public void wake() {
            Meeting now = meeting;
            if (now != null) {
              now.wake();
            }
          }
        };
  }

  /** How a rank comes to the others and waits for them. */
  private interface Meet {
    Member join(Consumer<Meeting> found, Duration timeout, BooleanSupplier aborted);
  }

  /** Makes the end of a new rank of a communicator that grows. */
  static ReferenceCommunicator joining(
      ReferenceBackend backend,
      UniqueId id,
      int newSize,
      int rank,
      int device,
      CommunicatorConfig config) {
    return new ReferenceCommunicator(
        backend,
        config,
        device,
        (found, timeout, aborted) -> {
          Growth growth = Growth.of(id, backend.options());
          growth.checkNew(rank);
          return join(growth.meeting(newSize), rank, null, found, timeout, aborted);
        });
  }

  /** Comes to a meeting where all are together and keep their order. */
  private static Member join(
      Meeting meeting,
      int rank,
      Member self,
      Consumer<Meeting> found,
      Duration timeout,
      BooleanSupplier aborted) {
    found.accept(meeting);
    return meeting.join(rank, self, 0, rank, timeout, aborted);
  }

  @Override
  protected void connect() {
    Member place = entry.await();
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
    return new ReferenceCommunicator(
        backend,
        childConfig,
        device(),
        (found, timeout, aborted) -> {
          Meeting meeting = member.world().meeting(member.next(Occasion.SPLIT, new BitSet()));
          found.accept(meeting);
          return meeting.join(rank(), member, wanted, key, timeout, aborted);
        });
  }

  @Override
  protected Communicator newShrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    BitSet excluded = new BitSet();
    excludedRanks.forEach(excluded::set);
    return new ReferenceCommunicator(
        backend,
        childConfig,
        device(),
        (found, timeout, aborted) -> {
          if (mode == ShrinkMode.ABORT_FIRST) {
            markRevoked();
            member.revoke();
          } else {
            finishOperations(Occasion.SHRINK);
          }
          Meeting meeting = member.world().meeting(member.next(Occasion.SHRINK, excluded));
          return join(meeting, rank(), member, found, timeout, aborted);
        });
  }

  @Override
  protected UniqueId createGrowId() {
    finishOperations(Occasion.GROW);
    Growth upcoming = growth(member.upcoming(Occasion.GROW, new BitSet()));
    UniqueId id = upcoming.newId(rank());
    growth = upcoming;
    return id;
  }

  @Override
  protected Communicator newGrown(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    return new ReferenceCommunicator(
        backend,
        childConfig,
        device(),
        (found, timeout, aborted) -> {
          finishOperations(Occasion.GROW);
          useGrowId(id);
          Growth now = growth(member.next(Occasion.GROW, new BitSet()));
          return join(now.meeting(newSize), rank(), member, found, timeout, aborted);
        });
  }

  private Growth growth(Occasion occasion) {
    return member.world().growth(occasion);
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
      INSIDE.setRelease(this, 0);
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
      entry.wake();
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
                "close", timeout(), "operations of " + this + " were pending; they are aborted");
    if (failed != null) {
      markAborted();
      place.abort();
      throw failed;
    }
    place.close();
  }
}
