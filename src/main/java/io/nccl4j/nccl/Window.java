package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.util.Arguments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.ToIntBiFunction;
import org.jspecify.annotations.NullMarked;

/**
 * This rank's part of memory that all ranks of a communicator registered together, so that peers
 * can access it. Created by {@link NcclCommunicator#registerWindow}.
 *
 * <p>While the window is open, the buffer's owner cannot be closed. The rank that created the
 * window closes it once no rank accesses the memory any more, including its own streams and the
 * peers' puts; closing the communicator ends open windows. A window follows the threading rules of
 * its communicator. Its handle is valid on this rank only, where it also denotes the peers' memory.
 */
@NullMarked
public final class Window implements AutoCloseable {
  static final int ALIGNMENT = nccl_h.NCCL_WIN_REQUIRED_ALIGNMENT();

  private final Communicator communicator;
  private final Registrations registrations;
  private final MemoryHandle handle;
  private final Set<WindowOption> options;

  Window(
      Communicator communicator,
      Registrations registrations,
      MemoryHandle handle,
      Set<WindowOption> options) {
    this.communicator = communicator;
    this.registrations = registrations;
    this.handle = handle;
    this.options = options;
  }

  /** Returns the functions that register and deregister a window with these options. */
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

  /** {@return the options that the window was registered with} */
  public Set<WindowOption> options() {
    return options;
  }

  /** {@return a view of this rank's memory, valid until the owner is closed} */
  public Buffer buffer() {
    return handle.buffer();
  }

  /** {@return whether the window has neither been closed nor ended with its communicator} */
  public boolean isOpen() {
    return registrations.contains(handle);
  }

  /**
   * {@return {@link #buffer}, after checking that NCCL reports the same address for it} C: {@code
   * ncclWinGetUserPtr}, from NCCL 2.29.2 on.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws IllegalStateException if the window or the communicator is not open, another thread is
   *     using the communicator, or NCCL reports another address
   * @throws NcclException if the library failed
   */
  public Buffer userBuffer() {
    checkOpen("window");
    long address = userPointer();
    if (address != buffer().address()) {
      throw new IllegalStateException(
          "NCCL reports another address for this window, 0x%x: %s".formatted(address, this));
    }
    return buffer();
  }

  /** Queries the address of this rank's memory from NCCL. */
  private long userPointer() {
    CommunicatorHandle nativeCommunicator = registrations.communicator();
    return ask(
        "ncclWinGetUserPtr",
        (window, pointer) ->
            nccl_h.ncclWinGetUserPtr(nativeCommunicator.pointer(), window, pointer));
  }

  /** Queries an address from NCCL, given the window and where NCCL writes the address. */
  private long ask(String function, ToIntBiFunction<MemorySegment, MemorySegment> query) {
    CommunicatorHandle nativeCommunicator = registrations.communicator();
    nativeCommunicator.library().require(function);
    nativeCommunicator.context().checkConnected();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment pointer = arena.allocate(ValueLayout.ADDRESS);
      nativeCommunicator.call(function, comm -> query.applyAsInt(handle.handle(), pointer));
      return pointer.get(ValueLayout.ADDRESS, 0).address();
    }
  }

  /**
   * {@return the address at which kernels of this rank's device can access a rank's memory of this
   * window; empty if they cannot} It is valid while the window is open on both ranks. C: {@code
   * ncclGetPeerDevicePointer}, from NCCL 2.29.2 on.
   *
   * @param peer a rank of the communicator, from 0; may be this rank
   * @param offset the offset in bytes in the peer's memory, from 0 to less than the size of this
   *     rank's
   * @throws IllegalArgumentException if an argument is out of range
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws IllegalStateException if the window or the communicator is not open, or another thread
   *     is using the communicator
   * @throws NcclException if the library failed
   */
  public OptionalLong peerAddress(int peer, long offset) {
    Arguments.inRange(peer, "peer", 0, communicator.size() - 1);
    return deviceAddress(
        "ncclGetPeerDevicePointer",
        offset,
        (window, pointer) -> nccl_h.ncclGetPeerDevicePointer(window, offset, peer, pointer));
  }

  /**
   * {@return the address at which kernels of this rank's device can access the memory of all ranks
   * of this window that share memory with it, by multicast over NVLink; empty if they cannot} C:
   * {@code ncclGetLsaMultimemDevicePointer}, from NCCL 2.29.2 on.
   *
   * @param offset the offset in bytes, from 0 to less than the size of this rank's memory
   * @throws IllegalArgumentException if the offset is out of range
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws IllegalStateException if the window or the communicator is not open, or another thread
   *     is using the communicator
   * @throws NcclException if the library failed
   */
  public OptionalLong multicastAddress(long offset) {
    return deviceAddress(
        "ncclGetLsaMultimemDevicePointer",
        offset,
        (window, pointer) -> nccl_h.ncclGetLsaMultimemDevicePointer(window, offset, pointer));
  }

  private OptionalLong deviceAddress(
      String function, long offset, ToIntBiFunction<MemorySegment, MemorySegment> query) {
    checkOpen("window");
    long bytes = buffer().byteSize();
    if (offset < 0 || offset >= bytes) {
      throw new IllegalArgumentException(
          "offset is " + offset + "; it must be from 0 to " + (bytes - 1));
    }
    long address = ask(function, query);
    return address == 0 ? OptionalLong.empty() : OptionalLong.of(address);
  }

  /**
   * {@return the {@code ncclWindow_t}, for use in other native code} It is valid while the window
   * is open.
   *
   * @throws IllegalStateException if the window is not open
   */
  public long address() {
    checkOpen("window");
    return handle.handle().address();
  }

  /**
   * Deregisters the window on this rank, without waiting for the peers. Does nothing if the window
   * is closed or the communicator has ended. If another thread is closing the communicator, waits
   * for that close, which ends the window too. C: {@code ncclCommWindowDeregister}, from NCCL 2.27
   * on.
   *
   * @throws IllegalStateException if another thread is using the communicator
   * @throws NcclException if the library failed, or the configured timeout has passed
   */
  @Override
  public void close() {
    registrations.close(handle);
  }

  /** Returns whether this window belongs to the communicator with that table. */
  boolean isOf(Registrations table) {
    return registrations == table;
  }

  MemoryHandle handle() {
    return handle;
  }

  /** Returns whether a buffer's memory lies within this window's. */
  boolean contains(Buffer other) {
    long start = buffer().address();
    return other.address() >= start
        && other.address() + other.byteSize() <= start + buffer().byteSize();
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
