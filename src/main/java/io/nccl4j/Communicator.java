package io.nccl4j;

import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.internal.util.Steps;
import io.nccl4j.spi.Memory;
import io.nccl4j.spi.StreamDriver;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.apache.logging.log4j.LogManager;

/**
 * One rank's end of a set of ranks that move data together. Its operations enqueue work on a {@link
 * Stream} and return; the work is done when the stream has passed it.
 *
 * <p>Every rank calls the same collectives, with matching counts, types, operators and roots, in
 * the same order. {@code send} and {@code recv} are either the same memory in the way that each
 * method names (in-place) or do not overlap. A collective of count 0 does nothing; a send of count
 * 0 still needs its receive. Buffers, streams and operators stay the caller's, who keeps them open
 * until the stream has passed the operation.
 *
 * <p>Threading: one thread at a time may use a communicator; a second one is refused where it meets
 * the first. One thread at a time may use the communicators of one device, and every rank enqueues
 * their operations in the same order: otherwise the kernels of two may wait for each other for
 * ever. That is not checked, since several ranks may share a device. {@link #abort} alone may be
 * called from any thread at any time.
 *
 * <p>A thread that drives several ranks of one communicator calls their operations in one {@link
 * Group}. Outside a group the first call may wait for the others, so a collective that one thread
 * calls so for two ranks that were made together is refused with an {@link IllegalStateException}.
 *
 * <p>Arguments that can be checked are checked before anything is launched, with an {@link
 * IllegalArgumentException} that names argument, value and rule, or an {@link
 * IllegalStateException} for what is closed, or a {@link NullPointerException} for what is missing.
 * In a {@link Group} an operation is checked at once, and for what was closed since when the group
 * ends. What the library then refuses is an {@link NcclException}.
 *
 * <p>A communicator that becomes unreachable before it was closed or aborted is logged as a
 * warning, with the stack that made it. It is not closed, because that would end it for the other
 * ranks too.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html">Collective
 *     communication functions</a>
 */
public abstract sealed class Communicator implements AutoCloseable
    permits io.nccl4j.nccl.NcclCommunicator, io.nccl4j.reference.ReferenceCommunicator {
  /** The {@code peer} of an operation that has neither a root nor a peer. */
  public static final int NO_PEER = -1;

  /** The code of no operator. */
  static final int NO_OPERATOR = -1;

  /** The life of a communicator; only a connected one carries operations. */
  private enum State {
    UNCONNECTED,
    CONNECTED,
    SUSPENDED,
    REVOKED,
    ABORTED,
    CLOSED;

    /** Whether there is something to close. */
    boolean open() {
      return this == CONNECTED || this == SUSPENDED || this == REVOKED;
    }
  }

  private final Backend backend;
  private final CommunicatorConfig config;
  private final Platform platform;
  private final int device;
  private final int place;
  private int rank;
  private int size;
  // Those of the streams that carry its operations. They do not keep a stream that was forgotten.
  private final Set<Progress> carriers = ConcurrentHashMap.newKeySet();
  // Those that are open. A library may wait for their end before it ends the communicator.
  private final Set<Graph> graphs = ConcurrentHashMap.newKeySet();
  private volatile State state = State.UNCONNECTED;
  private volatile boolean aborted;
  private volatile boolean stuck;
  // Whether an Error has kept a close or an abort from ending the connection; another abort goes
  // on.
  private volatile boolean unended;
  private volatile UniqueId growId;

  // What recordings know it by: the same on every rank, as is the number of a collective.
  private Origin origin;
  private volatile String identity = "";
  private volatile int firstRank = -1;
  private final Map<String, Integer> children = new HashMap<>();
  private long collectives;
  private long[] sends = {};
  private long[] receives = {};
  private boolean failureTold;

  private final LeakTracker leak = new LeakTracker();

  // The other ranks of this communicator that one thread made together with this one.
  private Communicator[] siblings = {};
  // The thread that called a collective last outside any group, and the numbers of the first and
  // the last of its collectives.
  private Thread caller;
  private long firstCalled;
  private long lastCalled;

  /**
   * For the backends: makes a communicator that {@link #connect} will connect.
   *
   * @param backend the backend that makes it
   * @param config the configuration that the caller gave
   * @param device the index of the device that this rank uses
   * @param rank this rank, or -1 where only connecting will tell
   * @param size the number of ranks, or -1 where only connecting will tell
   * @param origin how it comes to be
   */
  protected Communicator(
      Backend backend, CommunicatorConfig config, int device, int rank, int size, Origin origin) {
    this.backend = backend;
    this.config = config;
    this.platform = backend.platform();
    this.device = device;
    this.place = platform.place(device);
    this.rank = rank;
    this.size = size;
    this.origin = origin;
  }

  /** {@return the backend that made this communicator} */
  public final Backend backend() {
    return backend;
  }

  /** {@return the configuration that this communicator was made with} */
  public final CommunicatorConfig config() {
    return config;
  }

  /** {@return the device that this rank uses} C: {@code ncclCommCuDevice}. */
  public final int device() {
    return device;
  }

  /**
   * {@return this rank, from 0 to {@code size() - 1}} C: {@code ncclCommUserRank}.
   *
   * @throws IllegalStateException if it comes from a split whose group has not ended, or that
   *     failed
   */
  public final int rank() {
    checkConnectedOnce();
    return rank;
  }

  /**
   * {@return the number of ranks} C: {@code ncclCommCount}.
   *
   * @throws IllegalStateException if it comes from a split whose group has not ended, or that
   *     failed
   */
  public final int size() {
    checkConnectedOnce();
    return size;
  }

  /**
   * {@return a new stream on this rank's device, for the caller to close} C: {@code
   * cudaStreamCreateWithFlags}, non-blocking.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the runtime refuses
   */
  public final Stream newStream() {
    return backend.newStream(device);
  }

  /**
   * {@return a new event of this rank's device, for the caller to close} C: {@code
   * cudaEventCreateWithFlags}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the runtime refuses
   */
  public final Event newEvent() {
    return backend.newEvent(device);
  }

  /**
   * Allocates memory of this rank's device, for the caller to close. Its contents are undefined. C:
   * {@code cudaMalloc}.
   *
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory
   * @throws IllegalArgumentException if the count is out of its range
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if there is not enough memory on the device
   */
  public final Buffer allocate(DataType type, long count) {
    return backend.allocate(device, type, count);
  }

  /**
   * Reduces all ranks' data; every rank gets the result. C: {@code ncclAllReduce}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv where the result goes, {@code count} elements; in-place if it is the same memory as
   *     {@code send}
   * @param op how elements are combined
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    check(send, "send");
    check(recv, "recv");
    checkSameCount(send, recv);
    checkOperator(op, send.type());
    if (send != recv) {
      checkTypes(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.ALL_REDUCE, send, recv, send.count(), op, NO_PEER, stream);
  }

  /**
   * Copies the root's data to every rank. C: {@code ncclBroadcast}.
   *
   * @param send the root's data, {@code count} elements; on other ranks it is not read and may be
   *     null
   * @param recv where the data goes, {@code count} elements; in-place if it is the same memory as
   *     {@code send}
   * @param root the rank whose data it is
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void broadcast(Buffer send, Buffer recv, int root, Stream stream) {
    checkConnected();
    Arguments.rankWithin(root, size, "root");
    check(recv, "recv");
    if (send != null || rank == root) {
      check(send, "send");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.BROADCAST, send, recv, recv.count(), null, root, stream);
  }

  /**
   * Copies the root's data to every rank, in place. C: {@code ncclBroadcast} (and the older {@code
   * ncclBcast}).
   *
   * @param buffer the root's data, and on the other ranks where it goes; {@code count} elements
   * @param root the rank whose data it is
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void broadcast(Buffer buffer, int root, Stream stream) {
    checkConnected();
    Arguments.rankWithin(root, size, "root");
    check(buffer, "buffer");
    submit(Operation.BROADCAST, buffer, buffer, buffer.count(), null, root, stream);
  }

  /**
   * Reduces all ranks' data; the root gets the result. C: {@code ncclReduce}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv where the result goes on the root, {@code count} elements; in-place if it is the
   *     same memory as {@code send}. On other ranks it is not written and may be null
   * @param op how elements are combined
   * @param root the rank that gets the result
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void reduce(Buffer send, Buffer recv, ReduceOp op, int root, Stream stream) {
    checkConnected();
    Arguments.rankWithin(root, size, "root");
    check(send, "send");
    checkOperator(op, send.type());
    if (recv != null || rank == root) {
      check(recv, "recv");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.REDUCE, send, recv, send.count(), op, root, stream);
  }

  /**
   * Gathers every rank's data on every rank, in rank order. C: {@code ncclAllGather}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv where all data goes, {@code size() * count} elements; in-place if {@code send} is
   *     its slice at {@code rank() * count}
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void allGather(Buffer send, Buffer recv, Stream stream) {
    checkConnected();
    check(send, "send");
    check(recv, "recv");
    checkTypes(send, recv);
    checkWhole(recv, "recv", send, "send");
    checkOverlap(send, recv, rank * send.byteSize(), "send == recv + rank * count");
    submit(Operation.ALL_GATHER, send, recv, send.count(), null, NO_PEER, stream);
  }

  /**
   * Reduces all ranks' data; every rank gets its own slice of the result. C: {@code
   * ncclReduceScatter}.
   *
   * @param send this rank's data, {@code size() * count} elements
   * @param recv where slice {@code rank()} of the result goes, {@code count} elements; in-place if
   *     it is the slice of {@code send} at {@code rank() * count}
   * @param op how elements are combined
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    checkConnected();
    check(send, "send");
    check(recv, "recv");
    checkOperator(op, send.type());
    checkTypes(send, recv);
    checkWhole(send, "send", recv, "recv");
    checkOverlap(recv, send, rank * recv.byteSize(), "recv == send + rank * count");
    submit(Operation.REDUCE_SCATTER, send, recv, recv.count(), op, NO_PEER, stream);
  }

  /**
   * Sends slice r of this rank's data to rank r, and puts what rank r sends into slice r. It has no
   * in-place form. C: {@code ncclAlltoAll}, from NCCL 2.28 on; with an older library grouped sends
   * and receives.
   *
   * @param send this rank's data, {@code size() * count} elements
   * @param recv where the data of all ranks goes, {@code size() * count} elements
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void allToAll(Buffer send, Buffer recv, Stream stream) {
    checkConnected();
    check(send, "send");
    check(recv, "recv");
    checkTypes(send, recv);
    checkSameCount(send, recv);
    if (send.count() % size != 0) {
      throw new IllegalArgumentException(
          "send has count "
              + send.count()
              + "; it must be a multiple of the communicator's size, "
              + size);
    }
    if (send.overlaps(send.byteSize(), recv, recv.byteSize())) {
      throw new IllegalArgumentException("send and recv overlap; allToAll has no in-place form");
    }
    submit(Operation.ALL_TO_ALL, send, recv, send.count() / size, null, NO_PEER, stream);
  }

  /**
   * Gathers every rank's data on the root, in rank order. C: {@code ncclGather}, from NCCL 2.28 on;
   * with an older library grouped sends and receives.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv where all data goes on the root, {@code size() * count} elements; in-place if the
   *     root's {@code send} is its slice at {@code root * count}. On other ranks it is not written
   *     and may be null
   * @param root the rank that gets the data
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void gather(Buffer send, Buffer recv, int root, Stream stream) {
    checkConnected();
    Arguments.rankWithin(root, size, "root");
    check(send, "send");
    if (rank == root) {
      check(recv, "recv");
      checkTypes(send, recv);
      checkWhole(recv, "recv", send, "send");
      checkOverlap(send, recv, root * send.byteSize(), "send == recv + root * count");
    }
    submit(Operation.GATHER, send, rank == root ? recv : null, send.count(), null, root, stream);
  }

  /**
   * Gives every rank its own slice of the root's data. C: {@code ncclScatter}, from NCCL 2.28 on;
   * with an older library grouped sends and receives.
   *
   * @param send the root's data, {@code size() * count} elements; on other ranks it is not read and
   *     may be null
   * @param recv where this rank's slice goes, {@code count} elements; in-place if the root's {@code
   *     recv} is the slice of {@code send} at {@code root * count}
   * @param root the rank whose data it is
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void scatter(Buffer send, Buffer recv, int root, Stream stream) {
    checkConnected();
    Arguments.rankWithin(root, size, "root");
    check(recv, "recv");
    if (rank == root) {
      check(send, "send");
      checkTypes(send, recv);
      checkWhole(send, "send", recv, "recv");
      checkOverlap(recv, send, root * recv.byteSize(), "recv == send + root * count");
    }
    submit(Operation.SCATTER, rank == root ? send : null, recv, recv.count(), null, root, stream);
  }

  /**
   * Sends data to one peer, which receives it with {@link #recv}. A stream stops at a send until
   * the peer receives; what must progress together belongs into one {@link Group}. C: {@code
   * ncclSend}.
   *
   * @param buffer the data, {@code count} elements
   * @param peer the rank that receives; sending to oneself needs a receive in the same group
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void send(Buffer buffer, int peer, Stream stream) {
    checkConnected();
    checkPeer(peer);
    check(buffer, "buffer");
    submit(Operation.SEND, buffer, null, buffer.count(), null, peer, stream);
  }

  /**
   * Receives data from one peer, which sends the same type and count with {@link #send}. C: {@code
   * ncclRecv}.
   *
   * @param buffer where the data goes, {@code count} elements
   * @param peer the rank that sends
   * @param stream the stream that orders the operation, of this rank's device
   */
  public final void recv(Buffer buffer, int peer, Stream stream) {
    checkConnected();
    checkPeer(peer);
    check(buffer, "buffer");
    submit(Operation.RECV, null, buffer, buffer.count(), null, peer, stream);
  }

  /**
   * Creates an operator that multiplies each rank's data with that rank's scalar, then sums. C:
   * {@code ncclRedOpCreatePreMulSum}, from NCCL 2.11 on.
   *
   * @param type the type of the data that it will reduce
   * @param scalar this rank's factor, rounded to the type as {@link DataType#set} does
   * @return the operator, for the caller to close before the communicator
   */
  public final ReduceOp.PreMulSum preMulSum(DataType type, double scalar) {
    Objects.requireNonNull(type, "type");
    checkConnected();
    return new ReduceOp.PreMulSum(this, type, createOperator(type, scalar), null);
  }

  /**
   * Creates an operator like {@link #preMulSum(DataType, double)}, whose scalar is read from memory
   * when a reduction runs. C: {@code ncclRedOpCreatePreMulSum} with {@code ncclScalarDevice}.
   *
   * @param scalar one element, of the type that the operator will reduce; it stays open until the
   *     stream has passed the last reduction that uses the operator
   * @return the operator, for the caller to close before the communicator
   */
  public final ReduceOp.PreMulSum preMulSum(Buffer scalar) {
    check(scalar, "scalar");
    if (scalar.count() != 1) {
      throw new IllegalArgumentException("scalar has count " + scalar.count() + "; it must be 1");
    }
    return new ReduceOp.PreMulSum(this, scalar.type(), createOperator(scalar.memory()), scalar);
  }

  /**
   * Makes a new communicator of all ranks that pass the same color. Every rank of this communicator
   * calls {@code split} or {@link #splitWithoutColor}. C: {@code ncclCommSplit}, from NCCL 2.18 on.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childConfig the new communicator's configuration; a device is not allowed in it, this
   *     rank's is kept
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   * @throws IllegalArgumentException if the color is negative or the device is another
   * @throws IllegalStateException if this communicator is not open, or this thread's group holds
   *     operations or another split of this communicator
   * @throws NcclTimeoutException if not all ranks called in time
   * @throws NcclException if the library failed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public final Communicator split(int color, int key, CommunicatorConfig childConfig) {
    checkSplit(color, childConfig);
    Communicator child = newSplit(color, key, childConfig);
    child.connectNowOrWithGroup(this);
    return child;
  }

  /**
   * For the backends: makes the checks of {@link #split(int, int, CommunicatorConfig)}.
   *
   * @param color 0 or more
   * @param childConfig the new communicator's configuration
   */
  protected final void checkSplit(int color, CommunicatorConfig childConfig) {
    checkDivisible();
    Arguments.notNegative(color, "color");
    checkChild(childConfig, "split");
    if (growId != null) {
      throw new IllegalStateException(
          "an id of newGrowId waits for its grow, and a split in between would spoil it: " + this);
    }
  }

  private void checkChild(CommunicatorConfig childConfig, String call) {
    Graph.checkNotCapturing("making a communicator");
    Objects.requireNonNull(childConfig, "childConfig");
    if (childConfig.device().isPresent() && childConfig.device().getAsInt() != device) {
      throw new IllegalArgumentException(
          "childConfig has device "
              + childConfig.device().getAsInt()
              + "; a "
              + call
              + " keeps the parent's, "
              + device);
    }
  }

  /**
   * Makes a new communicator as {@link #split(int, int, CommunicatorConfig)} does, with this one's
   * configuration and with what that throws. C: {@code ncclCommSplit}, from NCCL 2.18 on.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   */
  public final Communicator split(int color, int key) {
    return split(color, key, config);
  }

  /**
   * Takes part in a split that gives this rank no new communicator. C: {@code ncclCommSplit} with
   * {@code NCCL_SPLIT_NOCOLOR}.
   *
   * @throws IllegalStateException as {@link #split(int, int, CommunicatorConfig)} does
   * @throws NcclException as {@link #split(int, int, CommunicatorConfig)} does
   */
  public final void splitWithoutColor() {
    checkSplit(0, config);
    newSplit(NO_COLOR, 0, config).connectNowOrWithGroup(this);
  }

  /**
   * Makes a new communicator of this one's ranks but some, which keep their order. The survivors
   * call it, all with the same ranks and mode; the excluded ranks do not, and may be gone. This is
   * how a program goes on after it has lost ranks: see {@link ShrinkMode#ABORT_FIRST}, and {@link
   * NcclException#failedRanks} for which ranks those are. C: {@code ncclCommShrink}, from NCCL 2.27
   * on.
   *
   * <p>On the reference, the call fails on every survivor if one of them dies or fails before all
   * have connected. They then call it again on this communicator, and exclude the lost ranks too.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all; the
   *     set is not kept
   * @param mode what becomes of this communicator's operations
   * @param childConfig the new communicator's configuration; a device is not allowed in it, this
   *     rank's is kept
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   * @throws IllegalArgumentException if a rank is out of its range, this rank is among them, there
   *     is none, or the device is another
   * @throws IllegalStateException if this communicator is not open, or this thread's group holds
   *     operations or another child of this communicator
   * @throws NcclTimeoutException if operations did not finish, or not all survivors called, in time
   * @throws NcclException if the library failed
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public final Communicator shrink(
      Set<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    SortedSet<Integer> excluded = checkShrink(excludedRanks, mode, childConfig);
    Communicator child = newShrink(excluded, mode, childConfig);
    child.connectNowOrWithGroup(this);
    return child;
  }

  /**
   * For the backends: makes the checks of {@link #shrink(Set, ShrinkMode, CommunicatorConfig)}.
   *
   * @param excludedRanks the ranks that are left out
   * @param mode what becomes of this communicator's operations
   * @param childConfig the new communicator's configuration
   * @return a copy of the excluded ranks
   */
  protected final SortedSet<Integer> checkShrink(
      Set<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    checkDivisible();
    Objects.requireNonNull(mode, "mode");
    checkChild(childConfig, "shrink");
    Objects.requireNonNull(excludedRanks, "excludedRanks");
    if (excludedRanks.stream().anyMatch(Objects::isNull)) {
      throw new NullPointerException("excludedRanks has a null element");
    }
    SortedSet<Integer> excluded = Collections.unmodifiableSortedSet(new TreeSet<>(excludedRanks));
    if (excluded.isEmpty()) {
      throw new IllegalArgumentException(
          "excludedRanks is empty; a shrink leaves out at least one");
    }
    for (int left : excluded) {
      Arguments.rankWithin(left, size, "excluded rank");
      if (left == rank) {
        throw new IllegalArgumentException(
            "excludedRanks has " + rank + ", this rank itself; only the ranks that stay shrink");
      }
    }
    return excluded;
  }

  /**
   * Makes the id that new ranks need to join this communicator by {@link Backend#join}. One rank of
   * this communicator calls it, gives the id to the new ranks (see {@code io.nccl4j.rendezvous}),
   * and then to its own {@link #grow(int, UniqueId, CommunicatorConfig)}. An id is good for one
   * grow that has begun, whether that succeeds or not, and there is only one at a time. It first
   * waits until this rank's streams have passed this communicator's operations; if it is
   * interrupted, it can be called again. C: {@code ncclCommGetUniqueId}, from NCCL 2.29.2 on.
   *
   * @return the id
   * @throws IllegalStateException if this communicator carries no operations, or an id has not been
   *     used yet
   * @throws NcclTimeoutException if operations did not finish in time
   * @throws NcclException if the library failed
   * @throws UnsupportedNcclVersionException if the library is too old
   */
  public final UniqueId newGrowId() {
    checkConnected();
    if (growId != null) {
      throw new IllegalStateException(
          "an id of newGrowId waits for its grow; there is only one at a time: " + this);
    }
    growId = createGrowId();
    return growId;
  }

  /**
   * Makes a new communicator of this one's ranks, which keep their numbers, and new ones, on the
   * rank that made the id. All other ranks of this communicator call {@link #grow(int,
   * CommunicatorConfig)}, the new ones {@link Backend#join}. It first waits until this rank's
   * streams have passed this communicator's operations; this communicator stays as it was. C:
   * {@code ncclCommGrow}, from NCCL 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param id what this communicator's {@link #newGrowId} gave last
   * @param childConfig the new communicator's configuration; a device is not allowed in it, this
   *     rank's is kept
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   * @throws IllegalArgumentException if the size is too small, the id another, or the device
   *     another
   * @throws IllegalStateException if this communicator carries no operations, or this thread's
   *     group holds operations or another child of this communicator
   * @throws NcclTimeoutException if operations did not finish, or not all ranks came, in time
   * @throws NcclException if the library failed
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public final Communicator grow(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    checkGrow(newSize, id, childConfig);
    Communicator child = newGrown(newSize, id, childConfig);
    child.connectNowOrWithGroup(this);
    return child;
  }

  /**
   * Makes a new communicator as {@link #grow(int, UniqueId, CommunicatorConfig)} does, on the ranks
   * that did not make the id, and with what that throws. C: {@code ncclCommGrow}, from NCCL 2.29.2
   * on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param childConfig the new communicator's configuration; a device is not allowed in it, this
   *     rank's is kept
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   */
  public final Communicator grow(int newSize, CommunicatorConfig childConfig) {
    checkGrow(newSize, childConfig);
    Communicator child = newGrown(newSize, null, childConfig);
    child.connectNowOrWithGroup(this);
    return child;
  }

  /**
   * For the backends: makes the checks of {@link #grow(int, CommunicatorConfig)}.
   *
   * @param newSize the number of ranks of the new communicator
   * @param childConfig the new communicator's configuration
   */
  protected final void checkGrow(int newSize, CommunicatorConfig childConfig) {
    checkGrowth(newSize, childConfig);
    if (growId != null) {
      throw new IllegalStateException(
          "this rank made the id of the grow and calls grow with it: " + this);
    }
  }

  /**
   * For the backends: makes the checks of {@link #grow(int, UniqueId, CommunicatorConfig)}.
   *
   * @param newSize the number of ranks of the new communicator
   * @param id what the caller gave
   * @param childConfig the new communicator's configuration
   */
  protected final void checkGrow(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    checkGrowth(newSize, childConfig);
    checkGrowId(id);
  }

  private void checkGrowth(int newSize, CommunicatorConfig childConfig) {
    checkConnected();
    checkChild(childConfig, "grow");
    if (newSize <= size) {
      throw new IllegalArgumentException(
          "newSize is " + newSize + "; it must be more than the communicator's size, " + size);
    }
  }

  private void checkGrowId(UniqueId id) {
    Objects.requireNonNull(id, "id");
    UniqueId there = growId;
    if (!id.equals(there)) {
      throw new IllegalArgumentException(
          "id is "
              + id
              + "; it must be the one that this communicator's newGrowId gave last, which is good"
              + " for one grow: "
              + (there == null ? "there is none" : there));
    }
  }

  /**
   * For the backends: uses up the one id that is there, just before the grow begins.
   *
   * @param id what the caller of the grow gave, or null where another rank made the id
   * @throws IllegalArgumentException if another grow has used it meanwhile
   */
  protected final synchronized void useGrowId(UniqueId id) {
    if (id != null) {
      checkGrowId(id);
      growId = null;
    }
  }

  /** What a backend's {@link #newSplit} gets from a rank that is to have no new communicator. */
  protected static final int NO_COLOR = -1;

  /**
   * {@return what has failed since the communicator was made, or nothing: the network, a peer, a
   * kernel} After a failure, {@link #abort} every rank's communicator. C: {@code
   * ncclCommGetAsyncError}.
   *
   * @throws IllegalStateException if the communicator is not connected yet, aborted or closed
   */
  public final Optional<NcclException> asyncError() {
    if (!open()) {
      checkConnected();
    }
    return failure();
  }

  /** Returns what has failed, and lets a running recording know of the first failure. */
  final Optional<NcclException> failure() {
    Optional<NcclException> found = findAsyncError();
    if (found.isPresent()) {
      found.get().initDetails(details());
    }
    if (found.isPresent() && !failureTold) {
      failureTold = true;
      Tracing.tell(this, "failure", found.get());
    }
    return found;
  }

  /**
   * Ends this communicator at once, and with it every operation on it that is enqueued or running
   * here, and every {@link Graph} that has any; their streams go on. Safe from any thread, also
   * while another one waits inside this communicator. Idempotent; after an {@link Error}, such as
   * an {@link OutOfMemoryError}, from {@code abort} or {@link #close}, another call ends what that
   * one has not. C: {@code ncclCommAbort}.
   *
   * @throws CudaException if a graph could not be destroyed, after having aborted
   */
  public final void abort() {
    synchronized (this) {
      if ((state == State.CLOSED || state == State.ABORTED) && !unended) {
        return;
      }
      unended = false;
      aborted = true;
      ending(() -> become(State.ABORTED));
    }
    try {
      ending(() -> Tracing.step(this, "abort", this::abortNow));
    } finally {
      if (streams().stream().anyMatch(Stream::abandoned)) {
        // An abort does not wait for the device.
        Thread.ofPlatform().daemon().name("nccl4j-streams").start(this::giveStreamsBack);
      }
    }
  }

  /** Takes a step to the end; after an Error, what is left is for another {@link #abort} to do. */
  private void ending(Runnable step) {
    try {
      step.run();
    } catch (Error failure) {
      unended = true;
      throw failure;
    }
  }

  private void abortNow() {
    try {
      endGraphs();
    } finally {
      abortConnection();
    }
  }

  /** Registers a graph of this communicator's operations, which must not outlive it. */
  final void capturedBy(Graph graph) {
    graphs.add(graph);
    State now = state;
    if (now != State.CONNECTED && now != State.SUSPENDED) {
      endGraphs();
    }
  }

  /** Learns that a graph has been closed. */
  final void forget(Graph graph) {
    graphs.remove(graph);
  }

  /**
   * For the backends: ends every graph of this communicator's operations; none is launched any
   * more.
   *
   * @throws CudaException if the runtime refuses to destroy one, after the others; what more fails
   *     is suppressed in it
   */
  protected final void endGraphs() {
    Steps.all(graphs.stream().<Runnable>map(graph -> graph::end).toList());
  }

  private void giveStreamsBack() {
    Steps.all(streams().stream().<Runnable>map(stream -> () -> giveBack(stream)).toList());
  }

  private static void giveBack(Stream stream) {
    try {
      stream.giveBackIfAbandoned();
    } catch (NcclException | CudaException e) {
      LogManager.getLogger(Communicator.class).warn("{} is stuck", stream, e);
    }
  }

  /**
   * Finishes what is enqueued, ends the {@link Graph}s of this communicator's operations that are
   * still open, tells the peers, and frees what the communicator holds. Every rank closes its end.
   * Each wait, for a stream with its operations and then for the peers, lasts for at most the
   * configured timeout; then it aborts. After a failure it aborts and tells it. An interrupt is
   * kept for later. One that is not connected yet is aborted. Idempotent; after {@link #abort}
   * there is nothing left to do. C: {@code ncclCommFinalize}, {@code ncclCommDestroy}.
   *
   * @throws IllegalStateException if this thread is capturing a graph; nothing is done then
   * @throws NcclTimeoutException if the time has passed, after having aborted
   * @throws NcclException if an operation or the library failed, after having aborted
   * @throws CudaException if work on a stream that carries its operations failed
   */
  @Override
  public final void close() {
    Graph.checkNotCapturing("closing a communicator");
    beginClose().run();
  }

  private void closeNow() {
    try {
      ending(this::closeConnection);
    } finally {
      giveStreamsBack();
    }
  }

  /** Lets nobody use the communicator any more; returns what is left to do. */
  private synchronized Runnable beginClose() {
    State before = state;
    ending(() -> become(State.CLOSED));
    if (before == State.UNCONNECTED) {
      // A thread may be connecting it, which does not come back here.
      aborted = true;
      return () -> ending(() -> Tracing.step(this, "abort", this::abortConnection));
    }
    return before.open() ? () -> Tracing.step(this, "close", this::closeNow) : () -> {};
  }

  /**
   * For the backends: closes as {@link #close} does, the waiting in a thread of its own.
   *
   * @return a stage that nobody else can complete; it fails with what {@code close} would throw
   */
  protected final CompletionStage<Void> closeInBackground() {
    Graph.checkNotCapturing("closing a communicator");
    Runnable rest = beginClose();
    try {
      return inBackground("nccl4j-close", nothing(rest));
    } catch (Error noThread) {
      unended = true;
      throw noThread;
    }
  }

  private void become(State next) {
    state = next;
    if (next == State.ABORTED || next == State.CLOSED) {
      leak.close();
    }
  }

  /** {@return whether the communicator is connected and neither closed nor aborted} */
  public final boolean open() {
    return state.open();
  }

  /**
   * {@return whether this communicator's operations were ended without being finished: by {@link
   * #abort}, by a {@link ShrinkMode#ABORT_FIRST shrink}, because connecting it failed, or, on NCCL,
   * because it was revoked or closing it failed}
   */
  public final boolean aborted() {
    return aborted;
  }

  /** For the backends: says that the communicator has ended without finishing its operations. */
  protected final void markAborted() {
    aborted = true;
  }

  /**
   * For the backends: says that the operations of this communicator are ended without being
   * finished, and that it carries none any more, though it can be divided and closed.
   */
  protected final synchronized void markRevoked() {
    if (state.open()) {
      aborted = true;
      become(State.REVOKED);
      Tracing.tell(this, "revoke", null);
    }
  }

  /** {@return whether the communicator carries no operations any more, but is not closed} */
  protected final boolean revoked() {
    return state == State.REVOKED;
  }

  /**
   * For the backends: says that this communicator carries no operations for a while, or does again.
   *
   * @param suspended whether it is suspended
   */
  protected final synchronized void markSuspended(boolean suspended) {
    if (state == (suspended ? State.CONNECTED : State.SUSPENDED)) {
      become(suspended ? State.SUSPENDED : State.CONNECTED);
      Tracing.tell(this, suspended ? "suspend" : "resume", null);
    }
  }

  /**
   * For the backends: throws unless this communicator carries operations.
   *
   * @throws IllegalStateException if it is not connected, suspended, revoked, aborted or closed
   */
  protected final void checkCarries() {
    checkConnected();
  }

  /** Remembers a stream that carries operations of this communicator. */
  final void carriedBy(Stream stream) {
    carriers.removeIf(known -> !known.alive());
    carriers.add(stream.progress());
  }

  private List<Stream> streams() {
    return carriers.stream().map(Progress::stream).filter(Objects::nonNull).toList();
  }

  /** Learns that a stream was given up with operations of this communicator still on it. */
  final void leftStuck() {
    stuck = true;
  }

  /**
   * For the backends, before they close or divide the connection: waits until every stream has
   * passed this communicator's operations.
   *
   * @param function the function that waits, for messages
   * @throws NcclTimeoutException if one has not within the timeout, or had not when it was closed
   * @throws CudaException if work on one of them has failed
   */
  protected final void awaitStreams(String function) {
    if (stuck) {
      throw new NcclTimeoutException(
              function, timeout(), "a stream that was closed before its work was done")
          .initDetails(lastEnqueued());
    }
    for (Stream stream : streams()) {
      if (stream.alive()) {
        // An abort or a failure of another communicator is that one's to report.
        stream.drain(timeout());
      }
    }
  }

  /**
   * For the backends: connects at once, or when this thread's group ends.
   *
   * @param parent the communicator that this one is made of, or null
   */
  protected final void connectNowOrWithGroup(Communicator parent) {
    Group group = Group.current();
    if (group != null) {
      group.add(this, parent);
    } else {
      connectNow();
    }
  }

  /**
   * For the backends: connects in a thread of its own.
   *
   * @return a stage that nobody else can complete, and that fails with why there is no connection
   * @throws IllegalStateException if this thread has a group open
   */
  protected final CompletionStage<Void> connectInBackground() {
    if (Group.running()) {
      throw new IllegalStateException(
          "a communicator that connects in the background belongs to no group; end the group first");
    }
    return inBackground("nccl4j-connect", nothing(this::connectNow));
  }

  private static Supplier<Void> nothing(Runnable work) {
    return () -> {
      work.run();
      return null;
    };
  }

  /**
   * For the backends: does what waits in a thread of its own.
   *
   * @param <T> what it makes
   * @param thread the thread's name
   * @param work what is to be done
   * @return a stage that nobody else can complete, and that fails with what the work throws
   */
  protected static <T> CompletionStage<T> inBackground(String thread, Supplier<T> work) {
    CompletableFuture<T> end = new CompletableFuture<>();
    Runnable run =
        () -> {
          try {
            end.complete(work.get());
          } catch (Throwable failure) {
            MemoryShortage.fail(end, failure);
          }
        };
    Thread.ofPlatform().daemon().name(thread).start(run);
    return end.minimalCompletionStage();
  }

  private void connectNow() {
    identity = origin.identity();
    firstRank = origin.parent() == null ? -1 : origin.parent().firstRank();
    try {
      Tracing.step(this, origin.step(), this::connectOrAbort);
    } finally {
      // A parent need not live as long as its children.
      origin = null;
    }
  }

  private void connectOrAbort() {
    try {
      if (state != State.UNCONNECTED) {
        throw new CommunicatorAbortedException("connect", toString());
      }
      connect();
      if (size >= 0) {
        // A split that leaves this rank out makes nothing to close.
        leak.watch(this, toString());
      }
    } catch (Throwable failure) {
      abortAfter(failure);
      throw failure;
    }
    synchronized (this) {
      if (state == State.UNCONNECTED) {
        become(State.CONNECTED);
        return;
      }
    }
    throw new CommunicatorAbortedException("connect", toString());
  }

  private void abortAfter(Throwable failure) {
    Steps.after(failure, this::abort);
  }

  /**
   * Connects several at the same time, since each may wait for the others. When one fails, all are
   * aborted at once and its failure comes out: the others would only wait for it. What they say
   * later is suppressed in it.
   */
  static void connectTogether(List<Communicator> communicators) {
    AtomicReference<Throwable> first = new AtomicReference<>();
    AtomicInteger connecting = new AtomicInteger(communicators.size());
    CountDownLatch connectedOrFailed = new CountDownLatch(1);
    for (Communicator communicator : communicators) {
      Runnable connect =
          () -> {
            try {
              communicator.connectNow();
            } catch (Throwable failure) {
              if (first.compareAndSet(null, failure)) {
                connectedOrFailed.countDown();
              } else {
                Steps.suppress(first.get(), failure);
              }
            }
            if (connecting.decrementAndGet() == 0) {
              connectedOrFailed.countDown();
            }
          };
      try {
        Thread.ofPlatform().daemon().name("nccl4j-connect").start(connect);
      } catch (Throwable failure) {
        // Those that have begun to connect are aborted below, like after any other failure.
        first.compareAndSet(null, failure);
        break;
      }
    }
    if (first.get() == null) {
      awaitUninterrupted(connectedOrFailed);
    }
    Throwable failure = first.get();
    if (failure != null) {
      communicators.forEach(communicator -> communicator.abortAfter(failure));
      if (failure instanceof Error error) {
        throw error;
      }
      throw (RuntimeException) failure;
    }
    communicators.forEach(communicator -> communicator.findSiblings(communicators));
  }

  private void findSiblings(List<Communicator> madeTogether) {
    if (size > 1) {
      siblings =
          madeTogether.stream()
              .filter(other -> other != this && other.identity.equals(identity))
              .toArray(Communicator[]::new);
    }
  }

  private boolean isCaller() {
    return siblings.length == 0 || caller == Thread.currentThread();
  }

  /**
   * Throws if this thread has called, outside any group, the very collective of another rank that
   * it now calls of this one. Of the ranks that were made together, one at most has a thread as its
   * caller, so a thread that keeps to one rank comes here once.
   */
  private void becomeCaller(Operation operation) {
    Thread thread = Thread.currentThread();
    long number = collectives + 1;
    for (Communicator sibling : siblings) {
      long last = sibling.lastCalled;
      // In this order, which the other thread's fence keeps too: if a thread that took over has
      // made the call, it is seen to be the caller.
      VarHandle.loadLoadFence();
      if (sibling.caller != thread) {
        continue;
      }
      if (sibling.firstCalled <= number && number <= last) {
        throw new IllegalStateException(
            "this thread has called collective %d of %s outside a group and now calls it of %s (%s); the first call may wait for the second, so call both in one Group.run, or each in a thread of its own"
                .formatted(number, sibling, this, operation.method()));
      }
      sibling.caller = null;
    }
    firstCalled = number;
    caller = thread;
    VarHandle.fullFence();
  }

  /** Each rank has its own deadline, so an interrupt is kept and the wait goes on. */
  private static void awaitUninterrupted(CountDownLatch latch) {
    boolean interrupted = false;
    while (true) {
      try {
        latch.await();
        break;
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /**
   * Launches a checked operation, or leaves that to this thread's group or the stream's capture.
   */
  private void submit(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    checkStream(stream);
    DataType type = (send == null ? recv : send).type();
    if (type.float8()) {
      checkFloat8(operation, type);
    }
    if (count == 0 && !operation.pointToPoint()) {
      return;
    }
    Group group = Group.current();
    if (group != null) {
      group.add(operation, this, send, recv, count, op, peer, stream);
      return;
    }
    stream.usedBy(this);
    if (stream.captured()) {
      stream.checkCapturedHere();
      capture(new OperationCall(operation, this, send, recv, count, op, peer, stream));
      return;
    }
    boolean collective = !operation.pointToPoint();
    if (collective && !isCaller()) {
      becomeCaller(operation);
    }
    launchAndCount(operation, send, recv, count, op, peer, stream);
    if (collective) {
      lastCalled = collectives;
    }
  }

  /** Returns how this communicator comes to be, or null if it is connected already. */
  final Origin origin() {
    return origin;
  }

  /** Returns the name that this communicator has in recordings, the same on every rank. */
  final String identity() {
    return identity;
  }

  /** Returns this rank's number in the communicator from which this one descends. */
  final int firstRank() {
    return firstRank < 0 ? rank : firstRank;
  }

  /** Returns this rank, or -1 if it is not known yet. */
  final int rankIfKnown() {
    return rank;
  }

  /** Returns the number of ranks, or -1 if it is not known yet. */
  final int sizeIfKnown() {
    return size;
  }

  /** Returns the number, from 1, of what is made of this communicator in some way. */
  final int countChild(Origin child) {
    synchronized (children) {
      return children.merge(child.kind(), 1, Integer::sum);
    }
  }

  /**
   * Counts an operation; returns its number among the collectives, or among the messages to or from
   * its peer. What is refused does not count, since no other rank's operation meets it.
   */
  final long count(Operation operation, int peer) {
    if (!operation.pointToPoint()) {
      return ++collectives;
    }
    if (sends.length == 0) {
      sends = new long[size];
      receives = new long[size];
    }
    return ++(operation == Operation.SEND ? sends : receives)[peer];
  }

  /** Takes back the count of an operation that was refused after it. */
  final void uncount(Operation operation, int peer) {
    if (operation.pointToPoint()) {
      (operation == Operation.SEND ? sends : receives)[peer]--;
    } else {
      collectives--;
    }
  }

  /** Launches an operation; unless it was refused, it counts and its stream now carries it. */
  private void launchAndCount(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    boolean refused = false;
    boolean traced = Tracing.on();
    long next = collectives + 1;
    try {
      if (traced) {
        Span.enclose(
            new OperationCall(operation, this, send, recv, count, op, peer, stream),
            () -> launchNow(operation, send, recv, count, op, peer, stream));
      } else {
        launchNow(operation, send, recv, count, op, peer, stream);
      }
    } catch (Throwable failure) {
      refused = Group.refuses(failure);
      describe(failure, operation, refused || operation.pointToPoint() ? 0 : next);
      throw failure;
    } finally {
      if (!refused) {
        stream.carries(send, recv, op);
        if (!traced) {
          count(operation, peer);
        }
      }
    }
  }

  /**
   * Says of a failure to launch operations which ones it concerns, unless that is known.
   *
   * @param operation the operation, or null where there are several
   * @param number the number of the first collective, or 0
   */
  final void describe(Throwable failure, Operation operation, long number) {
    if (failure instanceof NcclException known) {
      known.initDetails(details().in(operation, number));
    }
  }

  private FailureDetails details() {
    return FailureDetails.of(toString(), new BitSet(), new BitSet());
  }

  /** Returns how many collectives have been enqueued. */
  final long collectives() {
    return collectives;
  }

  /**
   * {@return what a wait concerns that has timed out and could be for anything that is enqueued:
   * this communicator and its last collective} For the backends.
   */
  protected final FailureDetails lastEnqueued() {
    return details().in(null, collectives);
  }

  private void launchNow(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    launch(
        operation,
        OperationCall.memory(send),
        OperationCall.memory(recv),
        count,
        OperationCall.operator(op),
        peer,
        stream.driver());
  }

  private void capture(OperationCall call) {
    Stream stream = call.stream();
    if (stream.capturesNatively()) {
      launchNow(
          call.operation(), call.send(), call.recv(), call.count(), call.op(), call.peer(), stream);
    }
    stream.keep(List.of(call));
  }

  /**
   * For the backends: launches a call of their own, or leaves that to this thread's group or the
   * stream's capture, as with any operation.
   *
   * @param call a call of this communicator, its other arguments checked
   * @throws IllegalStateException if this communicator or the call's stream is not open
   * @throws IllegalArgumentException if the stream is of another device or backend
   */
  protected final void submit(BackendCall call) {
    checkConnected();
    Stream stream = call.stream();
    checkStream(stream);
    Group group = Group.current();
    if (group != null) {
      group.add(call);
      return;
    }
    stream.usedBy(this);
    if (stream.captured()) {
      stream.checkCapturedHere();
    }
    if (!stream.captured() || stream.capturesNatively()) {
      call.launch();
    }
    if (stream.captured()) {
      stream.keep(List.of(call));
    } else {
      stream.carries(call);
    }
  }

  private void checkStream(Stream stream) {
    Objects.requireNonNull(stream, "stream");
    if (!stream.isAt(place)) {
      stream.checkOpen();
      throw new IllegalArgumentException(
          "stream is "
              + stream
              + "; it must be of this rank's device, "
              + platform
              + " device "
              + device);
    }
  }

  /**
   * For the backends: throws unless the buffer is one that this communicator can use now.
   *
   * @param buffer the buffer
   * @param argument what it is called in messages
   * @throws IllegalStateException if this communicator or the buffer's owner is not open
   * @throws IllegalArgumentException if this rank's device cannot use the buffer
   */
  protected final void check(Buffer buffer, String argument) {
    checkConnected();
    checkUsable(buffer, argument);
  }

  private void checkUsable(Buffer buffer, String argument) {
    Objects.requireNonNull(buffer, argument);
    if (!buffer.isAt(place)) {
      checkElsewhere(buffer, argument);
    }
  }

  /** Tells a buffer that is closed from one of any device, which is all right, and of another. */
  private void checkElsewhere(Buffer buffer, String argument) {
    buffer.checkOpen(argument);
    if (!buffer.usableOn(platform, device)) {
      throw new IllegalArgumentException(
          argument
              + " is "
              + buffer
              + "; it must be usable on this rank's device, "
              + platform
              + " device "
              + device);
    }
  }

  private void checkPeer(int peer) {
    Arguments.rankWithin(peer, size, "peer");
    if (peer == rank && Group.current() == null) {
      throw new IllegalArgumentException(
          "peer is " + peer + ", this rank itself; that needs a send and a receive in one group");
    }
  }

  private void checkOperator(ReduceOp op, DataType type) {
    Objects.requireNonNull(op, "op");
    op.check(this, type);
  }

  private static void checkTypes(Buffer send, Buffer recv) {
    Arguments.sameType(recv, "recv", send, "send");
  }

  private static void checkSameCount(Buffer send, Buffer recv) {
    if (send.count() != recv.count()) {
      throw new IllegalArgumentException(
          "recv has count " + recv.count() + "; it must be that of send, " + send.count());
    }
  }

  private void checkWhole(Buffer whole, String wholeName, Buffer part, String partName) {
    if (whole.count() / size != part.count() || whole.count() % size != 0) {
      throw new IllegalArgumentException(
          "%s has count %d; it must be size * %s's count, %d * %d"
              .formatted(wholeName, whole.count(), partName, size, part.count()));
    }
  }

  private static void checkOverlap(Buffer part, Buffer whole, long inPlaceBytes, String inPlace) {
    if (part.overlaps(part.byteSize(), whole, whole.byteSize())
        && part.bytesAfter(whole) != inPlaceBytes) {
      throw new IllegalArgumentException(
          "send and recv overlap; they must be separate, or in-place: " + inPlace);
    }
  }

  /**
   * For the backends: throws unless this communicator can be used now.
   *
   * @throws IllegalStateException if it is not connected yet, aborted or closed
   */
  protected final void checkConnected() {
    State now = state;
    if (now != State.CONNECTED) {
      throw now == State.UNCONNECTED
          ? unconnected()
          : new IllegalStateException(now.name().toLowerCase(Locale.ROOT) + ": " + this);
    }
  }

  /** Throws unless others can be made of this communicator. */
  final void checkDivisible() {
    if (state != State.REVOKED) {
      checkConnected();
    }
  }

  private void checkConnectedOnce() {
    if (size < 0) {
      throw unconnected();
    }
  }

  private IllegalStateException unconnected() {
    return new IllegalStateException("not connected yet, its group has not ended: " + this);
  }

  /**
   * For the backends: tells rank and size once connecting has found them.
   *
   * @param newRank this rank
   * @param newSize the number of ranks
   */
  protected final void place(int newRank, int newSize) {
    rank = newRank;
    size = newSize;
  }

  /** {@return the longest wait for a peer} */
  protected final Duration timeout() {
    return config.timeout();
  }

  /**
   * Makes the connection, within the timeout. It may run in any thread, at the same time as other
   * communicators' connecting.
   */
  protected abstract void connect();

  /**
   * {@return an unconnected communicator whose {@link #connect} takes part in the split; {@link
   * #NO_COLOR} for none}
   *
   * @param color 0 or more, or {@link #NO_COLOR}
   * @param key orders the new ranks
   * @param childConfig the new communicator's configuration
   */
  protected abstract Communicator newSplit(int color, int key, CommunicatorConfig childConfig);

  /**
   * {@return an unconnected communicator whose {@link #connect} takes part in the shrink}
   *
   * @param excludedRanks the ranks that are left out
   * @param mode what becomes of this communicator's operations
   * @param childConfig the new communicator's configuration
   */
  protected abstract Communicator newShrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig);

  /**
   * Does what {@link #newGrowId} promises.
   *
   * @return the id
   */
  protected abstract UniqueId createGrowId();

  /**
   * {@return an unconnected communicator whose {@link #connect} takes part in the grow}
   *
   * @param newSize the number of ranks of the new communicator
   * @param id what {@link #createGrowId} gave on this rank, or null if another rank made it
   * @param childConfig the new communicator's configuration
   */
  protected abstract Communicator newGrown(
      int newSize, UniqueId id, CommunicatorConfig childConfig);

  /**
   * Launches one checked operation, outside any group.
   *
   * @param operation what to do
   * @param send the data to send, or null where the operation or the rank sends none
   * @param recv where to receive, or null where the operation or the rank receives nothing
   * @param count the count that the C function takes, in elements
   * @param op the operator of a reduction, or {@link #NO_OPERATOR}
   * @param peer the root or the peer, or {@link #NO_PEER}
   * @param stream the stream that orders it, of this rank's device
   */
  @SuppressWarnings("exports")
  protected abstract void launch(
      Operation operation,
      Memory send,
      Memory recv,
      long count,
      int op,
      int peer,
      StreamDriver stream);

  /**
   * {@return what this rank has in common with the other ranks in this process and with nobody
   * else: these objects are equal}
   */
  protected abstract Object world();

  /**
   * Throws unless this rank can do the operation on a float8 type.
   *
   * @param operation what it is to do
   * @param type one of the two float8 types
   * @throws IllegalArgumentException if the device cannot
   * @throws UnsupportedNcclVersionException if NCCL cannot
   */
  protected abstract void checkFloat8(Operation operation, DataType type);

  /**
   * Creates an operator with an immediate scalar.
   *
   * @param type the type of the data that it will reduce
   * @param scalar this rank's factor, yet to be rounded to the type
   * @return the code of the operator in this communicator
   */
  protected abstract int createOperator(DataType type, double scalar);

  /**
   * Creates an operator whose scalar is read when a reduction runs.
   *
   * @param scalar one element, in memory that this rank's device can use
   * @return the code of the operator in this communicator
   */
  @SuppressWarnings("exports")
  protected abstract int createOperator(Memory scalar);

  /**
   * Gives an operator back; does nothing once the connection is gone, which took its operators
   * along.
   *
   * @param code what {@code createOperator} returned
   */
  protected abstract void destroyOperator(int code);

  /**
   * Does what {@link #asyncError} promises.
   *
   * @return what has failed, or nothing; also after {@link #abort}, when it may be nothing
   */
  protected abstract Optional<NcclException> findAsyncError();

  /**
   * {@return whether the library may still enqueue what a launch that was given up has left}
   * Whatever its streams say, its memory is in use.
   */
  protected boolean launching() {
    return false;
  }

  /**
   * Does what {@link #abort} promises, possibly while {@link #connect} runs. Called again only
   * after an {@link Error} of {@code abortConnection} or {@link #closeConnection}.
   */
  protected abstract void abortConnection();

  /**
   * Does what {@link #close} promises; called at most once, and not after {@link #abortConnection}.
   */
  protected abstract void closeConnection();

  @Override
  public String toString() {
    String label = config.name().isEmpty() ? "" : config.name() + ": ";
    String place = size < 0 ? "rank unknown yet" : "rank " + rank + " of " + size;
    return "Communicator[" + label + place + ", " + platform + " device " + device + "]";
  }
}
