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
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/**
 * What only NCCL has of a {@link Communicator}: a view, which owns nothing. The communicator is
 * closed and aborted, and does everything that every backend can do, by its own methods.
 *
 * <p>Several communicators of one device: NCCL's kernels hold a part of the device until their
 * peers come, so operations of two communicators must be enqueued in the same order on all ranks,
 * which two threads that race do not give. {@code NCCL_LAUNCH_ORDER_IMPLICIT=1} in the environment,
 * from NCCL 2.26 on, makes the device keep the order of the calls; the program still has to make
 * them in one order, best from one thread. A child that shares resources ({@link
 * NcclConfig#withSplitShare}, {@link NcclConfig#withShrinkShare}) shares unguarded state of NCCL's
 * with its parent too: not even different threads at different streams may call both at the same
 * time. nccl4j does not notice either; NCCL notices some of it, and answers with an {@link
 * io.nccl4j.NcclInvalidUsageException}.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/threadsafety.html">Thread
 *     safety</a>
 */
public final class NcclCommunicator {
  private final Communicator communicator;
  private final NcclCommunicatorDriver driver;

  private NcclCommunicator(Communicator communicator, NcclCommunicatorDriver driver) {
    this.communicator = communicator;
    this.driver = driver;
  }

  /**
   * {@return a view of a communicator, with what only NCCL has}
   *
   * @param communicator a communicator of the NCCL backend
   * @throws IllegalArgumentException if it is of another backend
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

  /** {@return the communicator that this is a view of} */
  public Communicator communicator() {
    return communicator;
  }

  /** {@return the configuration that this communicator was made with, NCCL's part included} */
  public NcclConfig configFields() {
    return driver.configFields();
  }

  /**
   * Makes a new communicator as {@link Communicator#split(int, int, CommunicatorConfig)} does, with
   * what only NCCL can be told, and with what that throws. C: {@code ncclCommSplit}, from NCCL 2.18
   * on.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  public Communicator split(int color, int key, NcclConfig childSettings) {
    return connected(unconnectedSplit(color, key, childSettings));
  }

  /**
   * Makes a new communicator as {@link Communicator#shrink} does, with what only NCCL can be told,
   * and with what that throws. C: {@code ncclCommShrink}, from NCCL 2.27 on.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all
   * @param mode what becomes of this communicator's operations
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator shrink(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig childSettings) {
    return connected(unconnectedShrink(excludedRanks, mode, childSettings));
  }

  /**
   * Makes a new communicator as {@link Communicator#grow(int, UniqueId, CommunicatorConfig)} does,
   * with what only NCCL can be told, and with what that throws. C: {@code ncclCommGrow}, from NCCL
   * 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param id what this communicator's {@link Communicator#newGrowId} gave last
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator grow(int newSize, UniqueId id, NcclConfig childSettings) {
    return connected(unconnectedGrow(newSize, id, childSettings));
  }

  /**
   * Makes a new communicator as {@link Communicator#grow(int, CommunicatorConfig)} does, with what
   * only NCCL can be told, and with what that throws. C: {@code ncclCommGrow}, from NCCL 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator grow(int newSize, NcclConfig childSettings) {
    return connected(unconnectedGrow(newSize, childSettings));
  }

  /**
   * Makes a new communicator as {@link #split(int, int, NcclConfig)} does, without waiting for it.
   * Until the stage has completed, this communicator is in use.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for the code that takes it to close,
   *     or fails as {@code split} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator is not open, or this thread has a group open
   */
  public CompletionStage<Communicator> splitAsync(int color, int key, NcclConfig childSettings) {
    return connectedAsync(() -> unconnectedSplit(color, key, childSettings));
  }

  /**
   * Makes a new communicator as {@link #shrink(Set, ShrinkMode, NcclConfig)} does, without waiting
   * for it. Until the stage has completed, this communicator is in use.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all
   * @param mode what becomes of this communicator's operations
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for the code that takes it to close,
   *     or fails as {@code shrink} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator is not open, or this thread has a group open
   */
  public CompletionStage<Communicator> shrinkAsync(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig childSettings) {
    return connectedAsync(() -> unconnectedShrink(excludedRanks, mode, childSettings));
  }

  /**
   * Makes a new communicator as {@link #grow(int, UniqueId, NcclConfig)} does, without waiting for
   * it. Until the stage has completed, this communicator is in use.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param id what this communicator's {@link Communicator#newGrowId} gave last
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for the code that takes it to close,
   *     or fails as {@code grow} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator carries no operations, or this thread has a
   *     group open
   */
  public CompletionStage<Communicator> growAsync(
      int newSize, UniqueId id, NcclConfig childSettings) {
    return connectedAsync(() -> unconnectedGrow(newSize, id, childSettings));
  }

  /**
   * Makes a new communicator as {@link #grow(int, NcclConfig)} does, without waiting for it. Until
   * the stage has completed, this communicator is in use.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link Communicator#size}
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for the code that takes it to close,
   *     or fails as {@code grow} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator carries no operations, or this thread has a
   *     group open
   */
  public CompletionStage<Communicator> growAsync(int newSize, NcclConfig childSettings) {
    return connectedAsync(() -> unconnectedGrow(newSize, childSettings));
  }

  /**
   * Closes as {@link Communicator#close} does, without waiting for it: from now on nothing can be
   * done with this communicator.
   *
   * @return a stage that completes when the communicator is gone, or fails as {@code close} does,
   *     within the same time
   */
  public CompletionStage<Void> closeAsync() {
    return Contract.get().closeAsync(communicator);
  }

  /**
   * Ends all operations of this communicator that are enqueued or running here, without giving it
   * up: afterwards it carries none, but can be split, shrunk and closed. A wait for their streams
   * fails as after an {@link Communicator#abort}. Idempotent. C: {@code ncclCommRevoke}, from NCCL
   * 2.28.7 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed or
   *     suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if the operations did not end in time
   * @throws NcclException if the library failed; then the communicator carries no operations, but
   *     this can be called again
   */
  public void revoke() {
    driver.end().revoke();
  }

  /**
   * Gives back the GPU memory that NCCL can do without until {@link #resume}; see {@link
   * #memoryStatistics}. Every rank calls it. It first waits until this rank's streams have passed
   * this communicator's operations; until it is resumed, the communicator carries none. C: {@code
   * ncclCommSuspend}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator carries no operations
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if operations did not finish, or not all ranks called, in time
   * @throws NcclException if the library failed
   */
  public void suspend() {
    driver.suspension().begin();
  }

  /**
   * Takes back what {@link #suspend} gave, after which the communicator carries operations again.
   * Every rank calls it. C: {@code ncclCommResume}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator is not suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if not all ranks called in time
   * @throws NcclException if the library failed, for want of memory for example
   */
  public void resume() {
    driver.suspension().end();
  }

  /** {@return whether {@link #suspend} has given memory back that {@link #resume} has not taken} */
  public boolean isSuspended() {
    return driver.suspension().isSuspended();
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
   * Registers memory that collectives will use, so that NCCL can do without its own buffers. The
   * peers need not do the same. C: {@code ncclCommRegister}, from NCCL 2.19 on.
   *
   * @param buffer the memory, of this rank's device, 1 element or more; {@link
   *     NcclBackend#newRegistrableBuffer} makes some that suits all of NCCL's transports. Its owner
   *     cannot be closed before the registration
   * @return the registration, for the caller to close before the communicator, which otherwise ends
   *     it
   * @throws IllegalArgumentException if the buffer is empty or of another device
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, or the configured timeout has passed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public BufferRegistration register(Buffer buffer) {
    return BufferRegistration.make(communicator, driver.registrations(), buffer);
  }

  /**
   * Registers memory together with the other ranks', so that peers reach it directly. Every rank
   * calls this, in the same order, with the same options; it returns when all have, within the
   * configured timeout. It is done at once, also within a group; a thread that drives several ranks
   * uses {@link #registerWindowAsync}. C: {@code ncclCommWindowRegister}, from NCCL 2.27 on.
   *
   * <p>After a timeout the ranks abort their communicators; until then the memory stays held.
   *
   * @param buffer this rank's memory, from {@link NcclBackend#newRegistrableBuffer} or CUDA's
   *     virtual-memory functions, 1 element or more, at a multiple of 4096 bytes; not in another
   *     open symmetric window of this communicator. Sizes may differ between ranks. Its owner
   *     cannot be closed before the window
   * @param options how it is registered
   * @return the window, for the caller to close before the communicator, which otherwise ends it
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older, or older than an option
   * @throws WindowsUnsupportedException if this communicator has no windows
   * @throws NcclException if the library failed, or not all ranks came in time
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Window registerWindow(Buffer buffer, WindowOption... options) {
    return made(buffer, driver.windowRegistry().checkedOptions(buffer, options));
  }

  /**
   * Registers memory as {@link #registerWindow} does, without waiting for it; for ranks whose calls
   * all come from one thread, and for non-blocking communicators. C: {@code
   * ncclCommWindowRegister}, from NCCL 2.27 on.
   *
   * @param buffer as for {@link #registerWindow}
   * @param options as for {@link #registerWindow}
   * @return a stage with the window, for its user to close, or with what {@code registerWindow}
   *     throws after its checks. It ends within the configured timeout, and until then nobody else
   *     may use the communicator; dependents run in a thread of nccl4j's own, or, if it has
   *     completed already, in the one that adds them
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open
   * @throws UnsupportedNcclVersionException if NCCL is older, or older than an option
   */
  public CompletionStage<Window> registerWindowAsync(Buffer buffer, WindowOption... options) {
    Set<WindowOption> checked = driver.windowRegistry().checkedOptions(buffer, options);
    return Background.start("nccl4j-registerWindow", () -> made(buffer, checked));
  }

  private Window made(Buffer buffer, Set<WindowOption> options) {
    return driver.windowRegistry().make(communicator, buffer, options);
  }

  /**
   * Writes data into a peer's window, which that peer need not take part in, and signals it. The
   * peer finds the data when it has waited for the signal with {@link #waitSignal}; puts and
   * signals to one peer arrive in the order of this rank's calls. The source may be written again
   * when the stream has passed. It takes part in groups and captures like a collective. C: {@code
   * ncclPutSignal}, from NCCL 2.29.2 on.
   *
   * <p>The first one-sided operation of a communicator is collective: every rank makes one, or all
   * wait.
   *
   * @param source the data, 1 element or more, in a symmetric window of this communicator
   * @param peer the rank to write to
   * @param window the symmetric window to write to, as this rank registered it
   * @param offset the first element that is written in the peer's window, counted in elements of
   *     the source's type. It is checked against this rank's window; where the peer's is smaller,
   *     it must fit there too
   * @param stream the stream that orders the operation, of this rank's device
   * @throws IllegalArgumentException if an argument does not fit
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void putSignal(Buffer source, int peer, Window window, long offset, Stream stream) {
    submit(
        RmaOperation.Put.checked(driver.windowRegistry(), source, peer, window, offset),
        source,
        stream);
  }

  /**
   * Signals a peer without data, after this rank's earlier puts and signals to it. It takes part in
   * groups and captures like a collective; the first of a communicator is collective, as with
   * {@link #putSignal}. C: {@code ncclSignal}, from NCCL 2.29.2 on.
   *
   * @param peer the rank to signal
   * @param stream the stream that orders the operation, of this rank's device
   * @throws IllegalArgumentException if there is no such rank, or the stream does not fit
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void signal(int peer, Stream stream) {
    submit(RmaOperation.Signal.checked(driver.communicator(), peer), null, stream);
  }

  /**
   * Lets the stream wait for signals of peers, each of which ends one wait. What they have put
   * before is visible to the stream's later work. It takes part in groups and captures like a
   * collective; the first of a communicator is collective, as with {@link #putSignal}. C: {@code
   * ncclWaitSignal}, from NCCL 2.29.2 on.
   *
   * @param signals how many signals of which peers, each peer once
   * @param stream the stream that waits, of this rank's device
   * @throws IllegalArgumentException if there is no such rank, none at all, or one twice
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void waitSignal(List<WaitSignal> signals, Stream stream) {
    submit(RmaOperation.Wait.checked(driver.communicator(), signals), null, stream);
  }

  private void submit(BackendOperation operation, Buffer source, Stream stream) {
    Contract.get().submit(communicator, operation, source, stream);
  }

  private Communicator unconnectedSplit(int color, int key, NcclConfig settings) {
    CommInit init = new CommInit.Split(driver.children(), color, key);
    return children().split(color, settings.common(), child -> named(settings, init, child));
  }

  private Communicator unconnectedShrink(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig settings) {
    return children()
        .shrink(
            excludedRanks,
            mode,
            settings.common(),
            (excluded, child) ->
                named(settings, new CommInit.Shrink(driver.children(), excluded, mode), child));
  }

  private Communicator unconnectedGrow(int newSize, UniqueId id, NcclConfig settings) {
    CommInit init = new CommInit.Grow(driver.children(), newSize, id);
    return children()
        .growWithId(newSize, id, settings.common(), child -> named(settings, init, child));
  }

  private Communicator unconnectedGrow(int newSize, NcclConfig settings) {
    CommInit init = new CommInit.Grow(driver.children(), newSize, null);
    return children().grow(newSize, settings.common(), child -> named(settings, init, child));
  }

  private ChildMaker children() {
    return Contract.get().children(communicator);
  }

  private CommunicatorDriver named(
      NcclConfig settings, CommInit making, CommunicatorContext child) {
    return driver.named(settings, making, child);
  }

  private Communicator connected(Communicator child) {
    return Contract.get().connected(child, communicator);
  }

  private CompletionStage<Communicator> connectedAsync(Supplier<Communicator> child) {
    return driver.children().oneAtATime(child, Contract.get()::connectedAsync);
  }

  @Override
  public String toString() {
    return communicator.toString();
  }
}
