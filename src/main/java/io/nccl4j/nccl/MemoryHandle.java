package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Memory that a communicator knows, and the handle that NCCL gave for it: what {@link
 * BufferRegistration} and {@link Window} have in common.
 *
 * <p>The buffer is held, so that its owner is not closed before this; NCCL would not notice.
 */
final class MemoryHandle {
  /** The native call that registers; it writes the handle into the cell. */
  interface Call {
    int make(MemorySegment communicator, MemorySegment memory, long bytes, MemorySegment cell);
  }

  /** The native call that gives a handle back. */
  interface Undo {
    int make(MemorySegment communicator, MemorySegment handle);
  }

  /**
   * The functions of one kind of registration.
   *
   * @param registering the name of the function that registers
   * @param register that function
   * @param deregistering the name of the function that takes it back
   * @param deregister that function
   */
  record Kind(String registering, Call register, String deregistering, Undo deregister) {}

  private final Kind kind;
  private final Buffer buffer;
  private final Buffer.Retention retention;
  // NCCL may write the handle after the call has answered, or was given up: the cell lives until
  // that is known to be over.
  private final Arena arena = Arena.ofShared();
  private final MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
  private volatile boolean callAbandoned;

  MemoryHandle(Kind kind, Buffer buffer, String holder) {
    this.kind = kind;
    this.retention = buffer.retain(holder);
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

  /** Returns the handle that NCCL has written; NULL where it has not, or will not. */
  MemorySegment handle() {
    return (MemorySegment) ValueLayout.ADDRESS.varHandle().getVolatile(cell, 0L);
  }

  /** Gives the handle back, where there is one, by the thread inside the communicator. */
  int deregister(MemorySegment communicator) {
    MemorySegment handle = handle();
    return handle.address() == 0
        ? nccl_h.ncclSuccess()
        : kind.deregister().make(communicator, handle);
  }

  /** Notes that nobody waits for the call any more, which NCCL may still be at. */
  void abandonCall() {
    callAbandoned = true;
  }

  /** Returns whether NCCL may still write the handle, as long as the communicator lives. */
  boolean callAbandoned() {
    return callAbandoned;
  }

  /** Lets the buffer go; when NCCL knows the memory no more. */
  void release() {
    retention.close();
    arena.close();
  }
}
