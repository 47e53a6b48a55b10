package io.nccl4j.spi;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;

/**
 * The memory of a {@link io.nccl4j.Buffer}, as passed to drivers. The caller has checked that the
 * buffer is open; this class does not track it.
 */
public final class BufferMemory {
  private final MemorySegment pointer;
  private final long address;
  private final DataType type;
  private final long count;
  private final long byteSize;

  /**
   * Creates a description of memory.
   *
   * @param pointer the first element. For CUDA a zero-length segment of the global scope, so that
   *     native calls acquire no session; on the host the memory itself
   * @param type the type of the elements
   * @param count the number of elements
   */
  public BufferMemory(MemorySegment pointer, DataType type, long count) {
    this.pointer = pointer;
    this.address = pointer.address();
    this.type = type;
    this.count = count;
    this.byteSize = count * type.bytes();
  }

  /** Returns the first element: for CUDA an address without a size, on the host the memory. */
  public MemorySegment pointer() {
    return pointer;
  }

  /** Returns the address of the first element. */
  public long address() {
    return address;
  }

  /** Returns the type of the elements. */
  public DataType type() {
    return type;
  }

  /** Returns the number of elements. */
  public long count() {
    return count;
  }

  /** Returns the size in bytes. */
  public long byteSize() {
    return byteSize;
  }
}
