package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.nccl_h;

/**
 * A buffer that a communicator knows in advance, so that collectives on it need no copy through
 * NCCL's own buffers. It is made by {@link NcclCommunicator#register}.
 *
 * <p>While it is open, the buffer's owner cannot be closed. It belongs to the rank that made it,
 * which closes it when its streams have passed the last operation on the memory; what is left open
 * ends with the communicator. Whoever may use the communicator may use this.
 */
public final class BufferRegistration implements AutoCloseable {
  static final MemoryHandle.Kind KIND =
      new MemoryHandle.Kind(
          "ncclCommRegister",
          nccl_h::ncclCommRegister,
          "ncclCommDeregister",
          nccl_h::ncclCommDeregister);

  private final Communicator communicator;
  private final RegistrationTable registrations;
  private final MemoryHandle handle;
  private final boolean effective;

  private BufferRegistration(
      Communicator communicator, RegistrationTable registrations, MemoryHandle registered) {
    this.communicator = communicator;
    this.registrations = registrations;
    this.handle = registered;
    this.effective = registered.handle().address() != 0;
  }

  /** Does what {@link NcclCommunicator#register} promises. */
  static BufferRegistration make(Communicator of, RegistrationTable registrations, Buffer buffer) {
    registrations.communicator().library().require(KIND.registering());
    registrations.check(buffer);
    return new BufferRegistration(
        of, registrations, registrations.make(KIND, buffer, "NCCL to register " + buffer));
  }

  /** {@return the communicator that knows the memory} */
  public Communicator communicator() {
    return communicator;
  }

  /** {@return the registered elements, as a view that ends with its owner} */
  public Buffer buffer() {
    return handle.buffer();
  }

  /**
   * {@return whether NCCL makes use of the registration} It passes over host memory, and everything
   * if {@code NCCL_LOCAL_REGISTER=0} is set, and says so in its log alone.
   */
  public boolean isEffective() {
    return effective;
  }

  /** {@return whether the registration has neither been closed nor ended with its communicator} */
  public boolean isOpen() {
    return registrations.knows(handle);
  }

  /**
   * Makes the communicator forget the memory; does nothing when it has already, or has ended. While
   * it is being closed, which ends the registration too, this waits for that. C: {@code
   * ncclCommDeregister}, from NCCL 2.19 on.
   *
   * @throws IllegalStateException if another thread uses the communicator
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
