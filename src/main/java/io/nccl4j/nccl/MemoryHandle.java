package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.spi.Contract;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Memory that is registered with a communicator, and NCCL's handle for it; shared by {@link
 * BufferRegistration} and {@link Window}.
 *
 * <p>The buffer is retained so that its owner cannot be closed first; NCCL would not detect that.
 */
final class MemoryHandle {
  /** The native call that registers; it writes the handle into the cell. */
  interface Call {
    int make(MemorySegment communicator, MemorySegment memory, long bytes, MemorySegment cell);
  }

  /** The native call that deregisters a handle. */
  interface Undo {
    int make(MemorySegment communicator, MemorySegment handle);
  }

  /**
   * The functions of one kind of registration.
   *
   * @param registering the name of the function that registers
   * @param register that function
   * @param deregistering the name of the function that deregisters
   * @param deregister that function
   */
  record Kind(String registering, Call register, String deregistering, Undo deregister) {}

  private final Kind kind;
  private final Buffer buffer;
  private final Runnable releaseBuffer;
  // Shared: NCCL may write the handle after the call has returned or was abandoned, on another
  // thread. The cell is freed once that can no longer happen.
  private final Arena arena = Arena.ofShared();
  private final MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
  private volatile boolean callAbandoned;

  MemoryHandle(Kind kind, Buffer buffer, String holder) {
    this.kind = kind;
    this.releaseBuffer = Contract.get().retain(buffer, holder);
    this.buffer = buffer.slice(0, buffer.count());
  }

  Kind kind() {
    return kind;
  }

  /** Returns a view of the memory. */
  Buffer buffer() {
    return buffer;
  }

  int register(MemorySegment communicator) {
    return kind.register()
        .make(communicator, MemorySegment.ofAddress(buffer.address()), buffer.byteSize(), cell);
  }

  /** Returns the handle that NCCL has written, or NULL if it has written none. */
  MemorySegment handle() {
    return (MemorySegment) ValueLayout.ADDRESS.varHandle().getVolatile(cell, 0L);
  }

  /** Deregisters the handle, if there is one. Called by the thread inside the communicator. */
  int deregister(MemorySegment communicator) {
    MemorySegment handle = handle();
    return handle.address() == 0
        ? nccl_h.ncclSuccess()
        : kind.deregister().make(communicator, handle);
  }

  /** Records that no thread waits for the call any more, although NCCL may still run it. */
  void abandonCall() {
    callAbandoned = true;
  }

  /** Returns whether NCCL may still write the handle until the communicator ends. */
  boolean callAbandoned() {
    return callAbandoned;
  }

  /** Releases the buffer. Called once NCCL no longer uses the memory. */
  void release() {
    releaseBuffer.run();
    arena.close();
  }
}
