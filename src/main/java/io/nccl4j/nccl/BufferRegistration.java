package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.nccl_h;
import org.jspecify.annotations.NullMarked;

/**
 * A buffer that is registered with a communicator, so that collectives on it need not copy through
 * NCCL's own buffers. Created by {@link NcclCommunicator#register}.
 *
 * <p>While the registration is open, the buffer's owner cannot be closed. The rank that created the
 * registration closes it once its streams have completed the last operation on the memory; closing
 * the communicator ends open registrations. A registration follows the threading rules of its
 * communicator.
 */
@NullMarked
public final class BufferRegistration implements AutoCloseable {
  static final MemoryHandle.Kind KIND =
      new MemoryHandle.Kind(
          "ncclCommRegister",
          nccl_h::ncclCommRegister,
          "ncclCommDeregister",
          nccl_h::ncclCommDeregister);

  private final Communicator communicator;
  private final Registrations registrations;
  private final MemoryHandle handle;
  private final boolean effective;

  private BufferRegistration(
      Communicator communicator, Registrations registrations, MemoryHandle handle) {
    this.communicator = communicator;
    this.registrations = registrations;
    this.handle = handle;
    this.effective = handle.handle().address() != 0;
  }

  /** Implements {@link NcclCommunicator#register}. */
  static BufferRegistration make(
      Communicator communicator, Registrations registrations, Buffer buffer) {
    registrations.communicator().library().require(KIND.registering());
    registrations.check(buffer);
    return new BufferRegistration(
        communicator,
        registrations,
        registrations.register(KIND, buffer, "NCCL to register " + buffer));
  }

  /** {@return the communicator that the buffer is registered with} */
  public Communicator communicator() {
    return communicator;
  }

  /** {@return a view of the registered elements, valid until the owner is closed} */
  public Buffer buffer() {
    return handle.buffer();
  }

  /**
   * {@return whether NCCL uses the registration} NCCL ignores host memory, and every buffer if
   * {@code NCCL_LOCAL_REGISTER=0} is set, and reports that only in its log.
   */
  public boolean isEffective() {
    return effective;
  }

  /** {@return whether the registration has neither been closed nor ended with its communicator} */
  public boolean isOpen() {
    return registrations.contains(handle);
  }

  /**
   * Deregisters the buffer. Does nothing if the registration is closed or the communicator has
   * ended. If another thread is closing the communicator, waits for that close, which ends the
   * registration too. C: {@code ncclCommDeregister}, from NCCL 2.19 on.
   *
   * @throws IllegalStateException if another thread is using the communicator
   * @throws NcclException if the library failed, or the configured timeout has passed
   */
  @Override
  public void close() {
    registrations.close(handle);
  }

  @Override
  public String toString() {
    return "Registration[" + buffer() + ", " + communicator + "]";
  }
}
