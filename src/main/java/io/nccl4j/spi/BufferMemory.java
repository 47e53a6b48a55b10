package io.nccl4j.spi;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;

/**
 * The elements of an open {@link io.nccl4j.Buffer}: what a driver gets of it. Whether the buffer is
 * still open was checked before and is not known here.
 */
public final class BufferMemory {
  private final MemorySegment pointer;
  private final long address;
  private final DataType type;
  private final int typeCode;
  private final long count;
  private final long byteSize;

  /**
   * Describes memory.
   *
   * @param pointer its first element. For CUDA it is of the global scope and has size 0, so that
   *     native calls acquire nothing; on the host it is the memory itself
   * @param type the type of the elements
   * @param count the number of elements
   */
  public BufferMemory(MemorySegment pointer, DataType type, long count) {
    this.pointer = pointer;
    this.address = pointer.address();
    this.type = type;
    this.typeCode = type.code();
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

  /** Returns the code of {@code ncclDataType_t} of the elements: {@code type().code()}, at hand. */
  public int typeCode() {
    return typeCode;
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
