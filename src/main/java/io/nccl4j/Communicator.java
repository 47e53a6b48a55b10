package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

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
public final class Communicator implements AutoCloseable {
  /** The {@code peer} of an operation that has neither a root nor a peer. */
  public static final int NO_PEER = -1;

  private final Backend backend;
  private final CommunicatorCore core;
  private final ChildCommunicators children;

  /**
   * Makes a communicator that is to be connected.
   *
   * @param rank this rank, or -1 where only connecting will tell
   * @param size the number of ranks, or -1 where only connecting will tell
   * @param origin how it comes to be
   * @param driver makes its driver
   */
  Communicator(
      Backend backend,
      CommunicatorConfig config,
      int device,
      int rank,
      int size,
      CommunicatorLineage origin,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    this.backend = backend;
    this.core = new CommunicatorCore(backend.driver(), config, device, rank, size, origin, driver);
    this.children = new ChildCommunicators(backend, core);
    core.owner(this);
  }

  /** {@return the backend that made this communicator} */
  public Backend backend() {
    return backend;
  }

  /** {@return the configuration that this communicator was made with} */
  public CommunicatorConfig config() {
    return core.config();
  }

  /** {@return the device that this rank uses} C: {@code ncclCommCuDevice}. */
  public int device() {
    return core.device();
  }

  /**
   * {@return this rank, from 0 to {@code size() - 1}} C: {@code ncclCommUserRank}.
   *
   * @throws IllegalStateException if it comes from a split whose group has not ended, or that
   *     failed
   */
  public int rank() {
    core.checkConnectedOnce();
    return core.rank();
  }

  /**
   * {@return the number of ranks} C: {@code ncclCommCount}.
   *
   * @throws IllegalStateException if it comes from a split whose group has not ended, or that
   *     failed
   */
  public int size() {
    core.checkConnectedOnce();
    return core.size();
  }

  /**
   * {@return a new stream on this rank's device, for the caller to close} C: {@code
   * cudaStreamCreateWithFlags}, non-blocking.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the runtime refuses
   */
  public Stream newStream() {
    return backend.newStream(device());
  }

  /**
   * {@return a new event of this rank's device, for the caller to close} C: {@code
   * cudaEventCreateWithFlags}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the runtime refuses
   */
  public Event newEvent() {
    return backend.newEvent(device());
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
  public Buffer newBuffer(DataType type, long count) {
    return backend.newBuffer(device(), type, count);
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
  public void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    core.checkUsable(send, "send");
    core.checkBuffer(recv, "recv");
    checkSameCount(send, recv);
    checkOperator(op, send.type());
    if (send != recv) {
      checkTypes(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    CallLauncher.submit(Operation.ALL_REDUCE, core, send, recv, send.count(), op, NO_PEER, stream);
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
  public void broadcast(Buffer send, Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(recv, "recv");
    if (send != null || core.rank() == root) {
      core.checkBuffer(send, "send");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    CallLauncher.submit(Operation.BROADCAST, core, send, recv, recv.count(), null, root, stream);
  }

  /**
   * Copies the root's data to every rank, in place. C: {@code ncclBroadcast} (and the older {@code
   * ncclBcast}).
   *
   * @param buffer the root's data, and on the other ranks where it goes; {@code count} elements
   * @param root the rank whose data it is
   * @param stream the stream that orders the operation, of this rank's device
   */
  public void broadcast(Buffer buffer, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(buffer, "buffer");
    CallLauncher.submit(
        Operation.BROADCAST, core, buffer, buffer, buffer.count(), null, root, stream);
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
  public void reduce(Buffer send, Buffer recv, ReduceOp op, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(send, "send");
    checkOperator(op, send.type());
    if (recv != null || core.rank() == root) {
      core.checkBuffer(recv, "recv");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    CallLauncher.submit(Operation.REDUCE, core, send, recv, send.count(), op, root, stream);
  }

  /**
   * Gathers every rank's data on every rank, in rank order. C: {@code ncclAllGather}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv where all data goes, {@code size() * count} elements; in-place if {@code send} is
   *     its slice at {@code rank() * count}
   * @param stream the stream that orders the operation, of this rank's device
   */
  public void allGather(Buffer send, Buffer recv, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkTypes(send, recv);
    checkWhole(recv, "recv", send, "send");
    checkOverlap(send, recv, core.rank() * send.byteSize(), "send == recv + rank * count");
    CallLauncher.submit(
        Operation.ALL_GATHER, core, send, recv, send.count(), null, NO_PEER, stream);
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
  public void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkOperator(op, send.type());
    checkTypes(send, recv);
    checkWhole(send, "send", recv, "recv");
    checkOverlap(recv, send, core.rank() * recv.byteSize(), "recv == send + rank * count");
    CallLauncher.submit(
        Operation.REDUCE_SCATTER, core, send, recv, recv.count(), op, NO_PEER, stream);
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
  public void allToAll(Buffer send, Buffer recv, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkTypes(send, recv);
    checkSameCount(send, recv);
    if (send.count() % core.size() != 0) {
      throw new IllegalArgumentException(
          "send has count "
              + send.count()
              + "; it must be a multiple of the communicator's size, "
              + core.size());
    }
    if (send.overlaps(send.byteSize(), recv, recv.byteSize())) {
      throw new IllegalArgumentException("send and recv overlap; allToAll has no in-place form");
    }
    CallLauncher.submit(
        Operation.ALL_TO_ALL, core, send, recv, send.count() / core.size(), null, NO_PEER, stream);
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
  public void gather(Buffer send, Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(send, "send");
    if (core.rank() == root) {
      core.checkBuffer(recv, "recv");
      checkTypes(send, recv);
      checkWhole(recv, "recv", send, "send");
      checkOverlap(send, recv, root * send.byteSize(), "send == recv + root * count");
    }
    CallLauncher.submit(
        Operation.GATHER,
        core,
        send,
        core.rank() == root ? recv : null,
        send.count(),
        null,
        root,
        stream);
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
  public void scatter(Buffer send, Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(recv, "recv");
    if (core.rank() == root) {
      core.checkBuffer(send, "send");
      checkTypes(send, recv);
      checkWhole(send, "send", recv, "recv");
      checkOverlap(recv, send, root * recv.byteSize(), "recv == send + root * count");
    }
    CallLauncher.submit(
        Operation.SCATTER,
        core,
        core.rank() == root ? send : null,
        recv,
        recv.count(),
        null,
        root,
        stream);
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
  public void send(Buffer buffer, int peer, Stream stream) {
    core.checkConnected();
    checkPeer(peer);
    core.checkBuffer(buffer, "buffer");
    CallLauncher.submit(Operation.SEND, core, buffer, null, buffer.count(), null, peer, stream);
  }

  /**
   * Receives data from one peer, which sends the same type and count with {@link #send}. C: {@code
   * ncclRecv}.
   *
   * @param buffer where the data goes, {@code count} elements
   * @param peer the rank that sends
   * @param stream the stream that orders the operation, of this rank's device
   */
  public void recv(Buffer buffer, int peer, Stream stream) {
    core.checkConnected();
    checkPeer(peer);
    core.checkBuffer(buffer, "buffer");
    CallLauncher.submit(Operation.RECV, core, null, buffer, buffer.count(), null, peer, stream);
  }

  /**
   * Creates an operator that multiplies each rank's data with that rank's scalar, then sums. C:
   * {@code ncclRedOpCreatePreMulSum}, from NCCL 2.11 on.
   *
   * @param type the type of the data that it will reduce
   * @param scalar this rank's factor, rounded to the type as {@link DataType#set} does
   * @return the operator, for the caller to close before the communicator
   */
  public ReduceOp.PreMulSum newPreMulSum(DataType type, double scalar) {
    Objects.requireNonNull(type, "type");
    core.checkConnected();
    return new ReduceOp.PreMulSum(core, type, core.driver().createOperator(type, scalar), null);
  }

  /**
   * Creates an operator like {@link #newPreMulSum(DataType, double)}, whose scalar is read from
   * memory when a reduction runs. C: {@code ncclRedOpCreatePreMulSum} with {@code
   * ncclScalarDevice}.
   *
   * @param scalar one element, of the type that the operator will reduce; it stays open until the
   *     stream has passed the last reduction that uses the operator
   * @return the operator, for the caller to close before the communicator
   */
  public ReduceOp.PreMulSum newPreMulSum(Buffer scalar) {
    core.checkUsable(scalar, "scalar");
    if (scalar.count() != 1) {
      throw new IllegalArgumentException("scalar has count " + scalar.count() + "; it must be 1");
    }
    return new ReduceOp.PreMulSum(
        core, scalar.type(), core.driver().createOperator(scalar.memory()), scalar);
  }

  /**
   * Makes a new communicator of all ranks that pass the same color. Every rank of this communicator
   * calls {@code split} or {@link #splitNoColor}. C: {@code ncclCommSplit}, from NCCL 2.18 on.
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
  public Communicator split(int color, int key, CommunicatorConfig childConfig) {
    return children
        .split(color, childConfig, child -> core.driver().split(color, key, child))
        .connectedNowOrWithGroup(this);
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
  public Communicator split(int color, int key) {
    return split(color, key, config());
  }

  /**
   * Takes part in a split that gives this rank no new communicator. C: {@code ncclCommSplit} with
   * {@code NCCL_SPLIT_NOCOLOR}.
   *
   * @throws IllegalStateException as {@link #split(int, int, CommunicatorConfig)} does
   * @throws NcclException as {@link #split(int, int, CommunicatorConfig)} does
   */
  public void splitNoColor() {
    children.splitNoColor().connectedNowOrWithGroup(this);
  }

  /**
   * Makes a new communicator of this one's ranks but some, which keep their order. The survivors
   * call it, all with the same ranks and mode; the excluded ranks do not, and may be gone. This is
   * how a program goes on after it has lost ranks: see {@link ShrinkMode#ABORT_FIRST}, and {@link
   * NcclException#failedRanks} for which ranks those are. C: {@code ncclCommShrink}, from NCCL 2.27
   * on.
   *
   * <p>It waits for the other survivors for the timeout of {@code childConfig}. A rank that learns
   * of a loss only by a time-out of its own calls it that much later, so give {@code childConfig} a
   * longer timeout.
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
  public Communicator shrink(
      Set<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    return children
        .shrink(
            excludedRanks,
            mode,
            childConfig,
            (excluded, child) -> core.driver().shrink(excluded, mode, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Makes a new communicator as {@link #shrink(Set, ShrinkMode, CommunicatorConfig)} does, with
   * this one's configuration.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all; the
   *     set is not kept
   * @param mode what becomes of this communicator's operations
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   */
  public Communicator shrink(Set<Integer> excludedRanks, ShrinkMode mode) {
    return shrink(excludedRanks, mode, config());
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
  public UniqueId newGrowId() {
    return children.newGrowId();
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
  public Communicator grow(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    return children
        .growWithId(newSize, id, childConfig, child -> core.driver().grow(newSize, id, child))
        .connectedNowOrWithGroup(this);
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
  public Communicator grow(int newSize, CommunicatorConfig childConfig) {
    return children
        .grow(newSize, childConfig, child -> core.driver().grow(newSize, null, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Makes a larger communicator as {@link #grow(int, UniqueId, CommunicatorConfig)} does, with this
   * one's configuration.
   *
   * @param newSize the number of ranks, old and new
   * @param id what {@link #newGrowId} returned on this rank
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   */
  public Communicator grow(int newSize, UniqueId id) {
    return grow(newSize, id, config());
  }

  /**
   * Makes a larger communicator as {@link #grow(int, CommunicatorConfig)} does, with this one's
   * configuration.
   *
   * @param newSize the number of ranks, old and new
   * @return the new communicator, for the caller to close; in a {@link Group} it is usable when the
   *     group has ended
   */
  public Communicator grow(int newSize) {
    return grow(newSize, config());
  }

  /**
   * {@return what has failed since the communicator was made, or nothing: the network, a peer, a
   * kernel} After a failure, {@link #abort} every rank's communicator. C: {@code
   * ncclCommGetAsyncError}.
   *
   * @throws IllegalStateException if the communicator is not connected yet, aborted or closed
   */
  public Optional<NcclException> asyncError() {
    if (!isOpen()) {
      core.checkConnected();
    }
    return core.failure();
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
  public void abort() {
    core.abort();
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
  public void close() {
    core.close();
  }

  /** {@return whether the communicator is connected and neither closed nor aborted} */
  public boolean isOpen() {
    return core.isOpen();
  }

  /**
   * {@return whether this communicator's operations were ended without being finished: by {@link
   * #abort}, by a {@link ShrinkMode#ABORT_FIRST shrink}, because connecting it failed, or, on NCCL,
   * because it was revoked or closing it failed}
   */
  public boolean isAborted() {
    return core.isAborted();
  }

  private void checkPeer(int peer) {
    Arguments.inRange(peer, "peer", 0, core.size() - 1);
    if (peer == core.rank() && Group.current() == null) {
      throw new IllegalArgumentException(
          "peer is " + peer + ", this rank itself; that needs a send and a receive in one group");
    }
  }

  private void checkOperator(ReduceOp op, DataType type) {
    Objects.requireNonNull(op, "op");
    op.check(core, type);
  }

  private static void checkTypes(Buffer send, Buffer recv) {
    Buffer.checkSameType(recv, "recv", send, "send");
  }

  private static void checkSameCount(Buffer send, Buffer recv) {
    if (send.count() != recv.count()) {
      throw new IllegalArgumentException(
          "recv has count " + recv.count() + "; it must be that of send, " + send.count());
    }
  }

  private void checkWhole(Buffer whole, String wholeName, Buffer part, String partName) {
    int size = core.size();
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

  /** Returns this communicator, connected now or when this thread's group ends. */
  Communicator connectedNowOrWithGroup(Communicator parent) {
    Group group = Group.current();
    if (group != null) {
      group.add(core, parent == null ? null : parent.core);
    } else {
      core.connect();
    }
    return this;
  }

  /**
   * Connects in a thread of its own.
   *
   * @return a stage that nothing else can complete, and that fails with why there is no connection
   * @throws IllegalStateException if this thread has a group open
   */
  CompletionStage<Communicator> connectInBackground() {
    if (Group.running()) {
      throw new IllegalStateException(
          "a communicator that connects in the background belongs to no group; end the group first");
    }
    return Background.start(
            "nccl4j-connect",
            () -> {
              core.connect();
              return null;
            })
        .thenApply(nothing -> this);
  }

  CommunicatorCore core() {
    return core;
  }

  ChildCommunicators children() {
    return children;
  }

  @Override
  public String toString() {
    return core.toString();
  }
}
