package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.spi.BackendOperation;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.ChildMaker;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.function.ToIntFunction;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * The NCCL-specific operations of a {@link Communicator}. An instance is a view of that
 * communicator and owns nothing; to close or abort it, and for everything that every backend
 * supports, use the communicator itself.
 *
 * {@snippet :
 * NcclCommunicator nccl = NcclCommunicator.of(comm);
 * try (Window window = nccl.registerWindow(buffer, WindowOption.SYMMETRIC)) {
 *   nccl.putSignal(buffer.slice(0, 1), next, window, 1, stream); // to element 1 of next
 *   nccl.waitSignal(List.of(new WaitSignal(previous, 1)), stream);
 *   stream.synchronize();
 * }
 * }
 *
 * <p>Several communicators on one device: an NCCL kernel occupies part of the device until its
 * peers join, so the operations of two communicators must be enqueued in the same order on all
 * ranks. Two racing threads do not guarantee that order. {@code NCCL_LAUNCH_ORDER_IMPLICIT=1} in
 * the environment, from NCCL 2.26 on, makes the device execute operations in the order of the
 * calls; the program must still make the calls in one order, preferably from one thread. A child
 * that shares resources ({@link NcclConfig#withSplitShare}, {@link NcclConfig#withShrinkShare})
 * also shares unsynchronized NCCL state with its parent: two threads must not call both at the same
 * time, even with different streams. nccl4j does not detect either mistake; NCCL detects some cases
 * and fails with an {@link io.nccl4j.NcclInvalidUsageException}.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/threadsafety.html">Thread
 *     safety</a>
 */
@NullMarked
public final class NcclCommunicator {
  private final Communicator communicator;
  private final NcclCommunicatorDriver driver;

  private NcclCommunicator(Communicator communicator, NcclCommunicatorDriver driver) {
    this.communicator = communicator;
    this.driver = driver;
  }

  /**
   * {@return a view of a communicator with the NCCL-specific operations}
   *
   * @param communicator a communicator of the NCCL backend
   * @throws IllegalArgumentException if it belongs to another backend
   */
  public static NcclCommunicator of(Communicator communicator) {
    Objects.requireNonNull(communicator, "communicator");
    if (Contract.get().driver(communicator) instanceof NcclCommunicatorDriver driver) {
      return new NcclCommunicator(communicator, driver);
    }
    throw new IllegalArgumentException(
        "communicator is "
            + communicator
            + " of the backend "
            + communicator.backend().name()
            + "; this needs one of the backend nccl");
  }

  /** {@return the communicator behind this view} */
  public Communicator communicator() {
    return communicator;
  }

  /** {@return the configuration of this communicator, including the NCCL-specific settings} */
  public NcclConfig config() {
    return driver.config();
  }

  /**
   * Creates a new communicator like {@link Communicator#split(int, int, CommunicatorConfig)}, with
   * NCCL-specific settings, and throws the same exceptions. C: {@code ncclCommSplit}, from NCCL
   * 2.18 on.
   *
   * @param color 0 or more; ranks with the same color form a communicator
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childConfig the new communicator's configuration; it must not set a device
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable once the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  public Communicator split(int color, int key, NcclConfig childConfig) {
    return connected(unconnectedSplit(color, key, childConfig));
  }

  /**
   * Creates a new communicator like {@link Communicator#shrink}, with NCCL-specific settings, and
   * throws the same exceptions. C: {@code ncclCommShrink}, from NCCL 2.27 on.
   *
   * @param excludedRanks the ranks to exclude; at least one, not this one and not all
   * @param mode whether this communicator's operations are awaited or aborted
   * @param childConfig the new communicator's configuration; it must not set a device
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable once the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator shrink(Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig childConfig) {
    return connected(unconnectedShrink(excludedRanks, mode, childConfig));
  }

  /**
   * Creates a new communicator like {@link Communicator#grow(int, UniqueId, CommunicatorConfig)},
   * with NCCL-specific settings, and throws the same exceptions. C: {@code ncclCommGrow}, from NCCL
   * 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param id the id that this communicator's {@link Communicator#newGrowId} returned last
   * @param childConfig the new communicator's configuration; it must not set a device
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable once the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator grow(int newSize, UniqueId id, NcclConfig childConfig) {
    return connected(unconnectedGrow(newSize, id, childConfig));
  }

  /**
   * Creates a new communicator like {@link Communicator#grow(int, CommunicatorConfig)}, with
   * NCCL-specific settings, and throws the same exceptions. C: {@code ncclCommGrow}, from NCCL
   * 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param childConfig the new communicator's configuration; it must not set a device
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable once the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator grow(int newSize, NcclConfig childConfig) {
    return connected(unconnectedGrow(newSize, childConfig));
  }

  /**
   * Ends all operations of this communicator that are enqueued or running on this rank, and keeps
   * the communicator. It then accepts no operations, but can be split, shrunk and closed. A wait
   * for their streams fails as after an {@link Communicator#abort}. Idempotent. C: {@code
   * ncclCommRevoke}, from NCCL 2.28.7 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed or
   *     suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if the operations did not end in time
   * @throws NcclException if the library failed; the communicator then accepts no operations, but
   *     this method can be called again
   */
  public void revoke() {
    driver.end().revoke();
  }

  /**
   * Releases the GPU memory that NCCL does not need until {@link #resume}; see {@link
   * #memoryStatistics}. Every rank must call it. It first waits until this rank's streams have
   * completed this communicator's operations; the communicator accepts none until it is resumed.
   * NCCL also waits for all other work of the device, such as kernels of other communicators, and
   * invalidates captures on it. C: {@code ncclCommSuspend}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator accepts no operations
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if operations did not complete, or not all ranks called, in time
   * @throws NcclException if the library failed
   */
  public void suspend() {
    driver.suspension().begin();
  }

  /**
   * Reacquires the memory that {@link #suspend} released. The communicator then accepts operations
   * again. Every rank must call it. C: {@code ncclCommResume}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator is not suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if not all ranks called in time
   * @throws NcclException if the library failed, for example because memory is exhausted
   */
  public void resume() {
    driver.suspension().end();
  }

  /** {@return whether {@link #suspend} released memory that {@link #resume} has not reacquired} */
  public boolean isSuspended() {
    return driver.suspension().isSuspended();
  }

  /**
   * {@return what the devices of this communicator can do} C: {@code ncclCommQueryProperties}, from
   * NCCL 2.29.2 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed, suspended
   *     or revoked
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclException if the library failed
   */
  public CommunicatorProperties properties() {
    return CommunicatorProperties.query(driver.handle());
  }

  /**
   * {@return how much GPU memory NCCL holds for this communicator} C: {@code ncclCommMemStats},
   * from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed or revoked
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclException if the library failed
   */
  public MemoryStatistics memoryStatistics() {
    return driver.suspension().statistics();
  }

  /**
   * Calls a function of NCCL that nccl4j does not offer, at once and on the calling platform
   * thread, also within {@link io.nccl4j.Group#run}. No other thread can use the communicator
   * during the call; a close waits for it. The call must not destroy, abort or keep the
   * communicator. nccl4j does not see what it enqueues: its buffers and streams must stay open
   * until that work has completed.
   *
   * @param function the function's name, for messages
   * @param call makes the call with the {@code ncclComm_t}, which is valid until it returns, and
   *     returns the {@code ncclResult_t}; its exceptions are thrown unchanged
   * @throws IllegalStateException if the communicator is not connected, aborted, closed, revoked or
   *     suspended, or another thread is using it
   * @throws NcclException if the call returned neither {@code ncclSuccess} nor {@code
   *     ncclInProgress}, which is waited for, or what it began failed or did not end in time
   */
  public void callNative(String function, ToIntFunction<MemorySegment> call) {
    Objects.requireNonNull(function, "function");
    Objects.requireNonNull(call, "call");
    driver.callNative(function, call);
  }

  /**
   * Registers memory that collectives will use, so that NCCL need not copy through its own buffers.
   * The peers need not register theirs. C: {@code ncclCommRegister}, from NCCL 2.19 on.
   *
   * @param buffer the memory, on this rank's device, 1 element or more; {@link
   *     NcclBackend#newRegistrableBuffer} allocates memory that suits all of NCCL's transports. Its
   *     owner cannot be closed before the registration
   * @return the registration, for the caller to close before the communicator; otherwise the
   *     communicator's close ends it
   * @throws IllegalArgumentException if the buffer is empty or on another device
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     is using the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, or the configured timeout has passed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted; its
   *     interrupt status stays set
   */
  public BufferRegistration register(Buffer buffer) {
    return BufferRegistration.make(communicator, driver.registrations(), buffer);
  }

  /**
   * Registers this rank's part of a window: memory that its peers can access directly. Collective:
   * every rank calls it, in the same order and with the same options, and it returns once all ranks
   * have called, within the configured timeout. A group does not defer it. A thread that drives
   * several ranks uses {@link #registerWindowAsync}. C: {@code ncclCommWindowRegister}, from NCCL
   * 2.27 on.
   *
   * <p>After a timeout, abort the communicators of all ranks; the memory stays retained until then.
   * Before NCCL 2.29.7 an abort does not end a collective on symmetric windows that waits for
   * another rank.
   *
   * @param buffer this rank's memory, from {@link NcclBackend#newRegistrableBuffer} or CUDA's
   *     virtual-memory functions, 1 element or more, at a multiple of 4096 bytes; it must not be in
   *     another open symmetric window of this communicator. Sizes may differ between ranks. Its
   *     owner cannot be closed before the window
   * @param options the options, the same on every rank
   * @return the window, for the caller to close before the communicator; otherwise the
   *     communicator's close ends it
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     is using the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older, or too old for an option
   * @throws WindowsUnsupportedException if this communicator does not support windows
   * @throws NcclException if the library failed, or not all ranks called in time
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted; its
   *     interrupt status stays set
   */
  public Window registerWindow(Buffer buffer, WindowOption... options) {
    return makeWindow(buffer, driver.registrations().checkedOptions(buffer, options));
  }

  /**
   * Registers memory like {@link #registerWindow}, without waiting for it. For a thread that drives
   * several ranks, and for non-blocking communicators. C: {@code ncclCommWindowRegister}, from NCCL
   * 2.27 on.
   *
   * @param buffer as for {@link #registerWindow}
   * @param options as for {@link #registerWindow}
   * @return a stage that completes with the window, for its receiver to close, or fails as {@code
   *     registerWindow} does after its checks. It completes within the configured timeout; until
   *     then nothing else may use the communicator. Dependent stages run on an nccl4j thread, or,
   *     if the stage has completed already, on the thread that adds them
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open
   * @throws UnsupportedNcclVersionException if NCCL is older, or too old for an option
   */
  public CompletionStage<Window> registerWindowAsync(Buffer buffer, WindowOption... options) {
    Set<WindowOption> checked = driver.registrations().checkedOptions(buffer, options);
    return Background.start("nccl4j-registerWindow", () -> makeWindow(buffer, checked));
  }

  private Window makeWindow(Buffer buffer, Set<WindowOption> options) {
    return driver.registrations().newWindow(communicator, buffer, options);
  }

  /**
   * Writes data into a peer's window and signals the peer. The peer need not take part in the
   * write; the data is visible there after it has waited for the signal with {@link #waitSignal}.
   * Puts and signals to one peer arrive in the order of this rank's calls. The source may be
   * overwritten once the stream has completed the operation. Can be used in groups and captures
   * like a collective. C: {@code ncclPutSignal}, from NCCL 2.29.2 on.
   *
   * <p>The first one-sided operation of a communicator is collective: every rank must make one, or
   * all wait.
   *
   * @param source the data, 1 element or more, in a symmetric window of this communicator
   * @param peer the rank to write to
   * @param window the symmetric window to write to, as registered by this rank
   * @param offset the first element to write in the peer's window, in elements of the source's
   *     type. It is checked against this rank's window; if the peer's window is smaller, the data
   *     must fit there too
   * @param stream the stream that orders the operation, on this rank's device
   * @throws IllegalArgumentException if an argument is out of range or does not match the others
   * @throws IllegalStateException if an argument or the communicator is closed, or another thread
   *     is using the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, for example because the ranks cannot access each
   *     other's memory
   */
  public void putSignal(Buffer source, int peer, Window window, long offset, Stream stream) {
    submit(
        RmaOperation.Put.checked(driver.registrations(), source, peer, window, offset),
        source,
        stream);
  }

  /**
   * Signals a peer without data, after this rank's earlier puts and signals to it. Can be used in
   * groups and captures like a collective. The first one-sided operation of a communicator is
   * collective, as for {@link #putSignal}. C: {@code ncclSignal}, from NCCL 2.29.2 on.
   *
   * @param peer the rank to signal
   * @param stream the stream that orders the operation, on this rank's device
   * @throws IllegalArgumentException if there is no such rank, or the stream is on another device
   * @throws IllegalStateException if the stream or the communicator is closed, or another thread is
   *     using the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, for example because the ranks cannot access each
   *     other's memory
   */
  public void signal(int peer, Stream stream) {
    submit(RmaOperation.Signal.checked(driver.handle(), peer), null, stream);
  }

  /**
   * Makes the stream wait for signals from peers; each signal satisfies one wait. Data that the
   * peers put before a signal is visible to the stream's later work. Can be used in groups and
   * captures like a collective. The first one-sided operation of a communicator is collective, as
   * for {@link #putSignal}. C: {@code ncclWaitSignal}, from NCCL 2.29.2 on.
   *
   * @param signals the number of signals to wait for from each peer; every peer at most once
   * @param stream the stream that waits, on this rank's device
   * @throws IllegalArgumentException if the list is empty, names a rank twice, or names one that
   *     does not exist
   * @throws IllegalStateException if the stream or the communicator is closed, or another thread is
   *     using the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, for example because the ranks cannot access each
   *     other's memory
   */
  public void waitSignal(List<WaitSignal> signals, Stream stream) {
    submit(RmaOperation.Wait.checked(driver.handle(), signals), null, stream);
  }

  private void submit(BackendOperation operation, @Nullable Buffer source, Stream stream) {
    Contract.get().submit(communicator, operation, source, stream);
  }

  private Communicator unconnectedSplit(int color, int key, NcclConfig config) {
    CommInit init = new CommInit.Split(driver.children(), color, key);
    return children().split(color, config.common(), child -> configured(config, init, child));
  }

  private Communicator unconnectedShrink(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig config) {
    return children()
        .shrink(
            excludedRanks,
            mode,
            config.common(),
            (excluded, child) ->
                configured(config, new CommInit.Shrink(driver.children(), excluded, mode), child));
  }

  private Communicator unconnectedGrow(int newSize, UniqueId id, NcclConfig config) {
    CommInit init = new CommInit.Grow(driver.children(), newSize, id);
    return children()
        .growWithId(newSize, id, config.common(), child -> configured(config, init, child));
  }

  private Communicator unconnectedGrow(int newSize, NcclConfig config) {
    CommInit init = new CommInit.Grow(driver.children(), newSize, null);
    return children().grow(newSize, config.common(), child -> configured(config, init, child));
  }

  private ChildMaker children() {
    return Contract.get().children(communicator);
  }

  private CommunicatorDriver configured(
      NcclConfig config, CommInit init, CommunicatorContext child) {
    return driver.configured(config, init, child);
  }

  private Communicator connected(Communicator child) {
    return Contract.get().connected(child, communicator);
  }

  @Override
  public String toString() {
    return communicator.toString();
  }
}
