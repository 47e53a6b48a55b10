package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Set;

/**
 * Memory that every rank of a communicator has registered together with the others', so that peers
 * can reach it. It is made by {@link NcclCommunicator#registerWindow}.
 *
 * <p>While it is open, the buffer's owner cannot be closed. It belongs to the rank that made it,
 * which closes it when no rank accesses the memory any more, its own streams and the peers' puts
 * included; what is left open ends with the communicator. Whoever may use the communicator may use
 * this. Its handle is good on this rank alone, also to name the peers' memory.
 */
public final class Window implements AutoCloseable {
  static final int ALIGNMENT = nccl_h.NCCL_WIN_REQUIRED_ALIGNMENT();

  private final Communicator communicator;
  private final RegistrationTable registrations;
  private final MemoryHandle handle;
  private final Set<WindowOption> options;

  Window(
      Communicator communicator,
      RegistrationTable registrations,
      MemoryHandle registered,
      Set<WindowOption> options) {
    this.communicator = communicator;
    this.registrations = registrations;
    this.handle = registered;
    this.options = options;
  }

  /** Returns the functions that make and undo a window with these options. */
  static MemoryHandle.Kind kind(Set<WindowOption> options) {
    int flags = WindowOption.flags(options);
    return new MemoryHandle.Kind(
        "ncclCommWindowRegister",
        (comm, memory, bytes, cell) ->
            nccl_h.ncclCommWindowRegister(comm, memory, bytes, cell, flags),
        "ncclCommWindowDeregister",
        nccl_h::ncclCommWindowDeregister);
  }

  /** {@return the communicator whose ranks registered the window} */
  public Communicator communicator() {
    return communicator;
  }

  /** {@return how it was registered} */
  public Set<WindowOption> options() {
    return options;
  }

  /** {@return this rank's memory, as a view that ends with its owner} */
  public Buffer buffer() {
    return handle.buffer();
  }

  /** {@return whether the window has neither been closed nor ended with its communicator} */
  public boolean isOpen() {
    return registrations.knows(handle);
  }

  /**
   * {@return this rank's memory as NCCL knows it, as a view that ends with its owner} It is that of
   * {@link #buffer}. C: {@code ncclWinGetUserPtr}, from NCCL 2.29.2 on.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws IllegalStateException if the window or the communicator is not open, another thread
   *     uses the communicator, or NCCL knows other memory
   * @throws NcclException if the library failed
   */
  public Buffer userBuffer() {
    checkOpen("window");
    long address = userPointer(handle.handle());
    if (address != buffer().address()) {
      throw new IllegalStateException("NCCL has this window at 0x%x: %s".formatted(address, this));
    }
    return buffer();
  }

  /** Asks NCCL where this rank's memory lies. */
  private long userPointer(MemorySegment handle) {
    String function = "ncclWinGetUserPtr";
    NativeCommunicator of = registrations.communicator();
    of.library().require(function);
    of.context().checkConnected();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment pointer = arena.allocate(ValueLayout.ADDRESS);
      of.call(function, comm -> nccl_h.ncclWinGetUserPtr(comm, handle, pointer));
      return pointer.get(ValueLayout.ADDRESS, 0).address();
    }
  }

  /**
   * {@return the {@code ncclWindow_t}: the way out to other native code} It is valid while the
   * window is open.
   *
   * @throws IllegalStateException if it is not
   */
  public long address() {
    checkOpen("window");
    return handle.handle().address();
  }

  /**
   * Makes this rank's communicator forget the window; does nothing when it has already, or has
   * ended. While the communicator is being closed, which ends the window too, it waits for that.
   * The peers are not waited for. C: {@code ncclCommWindowDeregister}, from NCCL 2.27 on.
   *
   * @throws IllegalStateException if another thread uses the communicator
   * @throws NcclException if the library failed, or the configured timeout has passed
   */
  @Override
  public void close() {
    registrations.close(handle);
  }

  /** Returns whether it is one of the communicator with these registrations. */
  boolean isOf(RegistrationTable others) {
    return registrations == others;
  }

  MemoryHandle handle() {
    return handle;
  }

  /** Returns whether all of a buffer's memory lies in this window's. */
  boolean contains(Buffer part) {
    long start = buffer().address();
    return part.address() >= start
        && part.address() + part.byteSize() <= start + buffer().byteSize();
  }

  /** Returns whether a buffer shares memory with this window. */
  boolean overlaps(Buffer other) {
    long start = buffer().address();
    return other.address() < start + buffer().byteSize()
        && start < other.address() + other.byteSize();
  }

  void checkOpen(String argument) {
    if (!isOpen()) {
      throw new IllegalStateException(argument + " is closed: " + this);
    }
  }

  @Override
  public String toString() {
    return "Window[" + buffer() + ", " + options + ", " + communicator + "]";
  }
}
