package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.Allocation;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.BufferMemory;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * A contiguous sequence of elements of one {@link DataType} outside the Java heap, which
 * collectives read and write.
 *
 * {@snippet :
 * float[] values = {1, 2, 3, 4};
 * try (Buffer buffer = comm.newBuffer(DataType.FLOAT32, 4)) {
 *   buffer.copyFromAsync(values, stream);
 *   comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
 *   buffer.copyTo(values, stream); // waits for the result
 * }
 * }
 *
 * <p>A buffer from {@link Communicator#newBuffer}, {@link Backend#newBuffer} or {@link
 * Backend#newPinnedBuffer} owns its memory, which {@link #close} frees. A buffer from {@link
 * #ofDeviceAddress(long, DataType, long, int)}, {@link #ofHostSegment(MemorySegment, DataType,
 * long)} or {@link #ofDirectBuffer} wraps memory of another owner, and a {@link #slice} is a view
 * of its buffer. The memory must stay valid until every stream has completed the last operation
 * that uses it; so synchronize before you close a buffer that owns its memory.
 *
 * <p>Any thread may use a buffer. Operations on its contents are ordered only by their streams. A
 * buffer must not be closed while another thread is in a call that uses it.
 */
@NullMarked
public final class Buffer implements AutoCloseable {
  /** The {@link #device} value of host memory that every device of its backend can use. */
  public static final int ANY_DEVICE = -1;

  // For memory of others.
  @SuppressWarnings("UnnecessaryLambda") // It is compared.
  private static final Runnable NOTHING_TO_RELEASE = () -> {};

  // Never started; stands for any thread that is not the owner of a confined arena.
  private static final Thread ANY_THREAD = Thread.ofPlatform().unstarted(() -> {});

  /** The kind of memory of a buffer, which determines the devices that can use it. */
  public enum MemoryType {
    /** Memory of a CUDA device; the host cannot address it. */
    DEVICE(DeviceType.CUDA),
    /** Page-locked host memory that CUDA devices can address too. */
    PINNED(DeviceType.CUDA),
    /** Host memory of the reference backend. */
    HOST(DeviceType.HOST);

    private final DeviceType deviceType;

    MemoryType(DeviceType deviceType) {
      this.deviceType = deviceType;
    }

    /** {@return the type of the devices that can address this memory} */
    public DeviceType deviceType() {
      return deviceType;
    }
  }

  private final MemoryOwner owner;
  private final boolean view;
  private final MemoryType memoryType;
  // The memory as the host accesses it; for device memory only the address.
  private final MemorySegment segment;
  private final BufferMemory memory;
  private final int device;

  private Buffer(
      MemoryOwner owner,
      boolean view,
      MemoryType memoryType,
      MemorySegment segment,
      DataType type,
      long count,
      int device) {
    this.owner = owner;
    this.view = view;
    this.memoryType = memoryType;
    this.segment = segment;
    MemorySegment pointer =
        memoryType == MemoryType.HOST ? segment : MemorySegment.ofAddress(segment.address());
    this.memory = new BufferMemory(pointer, type, count);
    this.device = device;
  }

  /**
   * Wraps CUDA device memory of another owner, such as a tensor of a framework. Closing the buffer
   * does not free the memory, but ends the use of the buffer and its slices. Makes no native call
   * and does not check that the memory exists.
   *
   * @param address the device address of the first element, as {@code cudaMalloc} returns it; a
   *     multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the CUDA device that the memory belongs to, as numbered in this process
   * @return the buffer
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofDeviceAddress(long address, DataType type, long count, int device) {
    return ofDeviceAddress(address, type, count, device, NOTHING_TO_RELEASE);
  }

  /**
   * Wraps CUDA device memory of another owner, with an action that releases it.
   *
   * @param address the device address of the first element, as {@code cudaMalloc} returns it; a
   *     multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the CUDA device that the memory belongs to, as numbered in this process
   * @param release runs once, when the buffer has been closed and no stream uses it any more. It
   *     runs in the thread that closes the buffer, which then throws its exceptions, or in a thread
   *     that later finds that the last stream has completed its work, which logs them
   * @return the buffer; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofDeviceAddress(
      long address, DataType type, long count, int device, Runnable release) {
    Arguments.atLeast(device, "device", 0);
    return of(MemoryType.DEVICE, MemorySegment.ofAddress(address), type, count, device, release);
  }

  /**
   * Wraps page-locked host memory, which CUDA devices access at the same address.
   *
   * @param memory page-locked native memory of the global scope, at least {@code count} elements
   *     long; its address is a multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param release runs once, when the buffer has been closed and no stream uses it any more. It
   *     runs in the thread that closes the buffer, which then throws its exceptions, or in a thread
   *     that later finds that the last stream has completed its work, which logs them
   * @return the buffer; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofPinnedSegment(
      MemorySegment memory, DataType type, long count, Runnable release) {
    return of(MemoryType.PINNED, sized(memory, type, count), type, count, ANY_DEVICE, release);
  }

  /**
   * Wraps native host memory of another owner, for communicators of the reference backend, with an
   * action that releases it.
   *
   * @param memory native memory that every thread can access, at least {@code count} elements long;
   *     its address is a multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the device of the reference backend that may use it, or {@link #ANY_DEVICE}
   * @param release runs once, when the buffer has been closed and no stream uses it any more. It
   *     runs in the thread that closes the buffer, which then throws its exceptions, or in a thread
   *     that later finds that the last stream has completed its work, which logs them
   * @return the buffer; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofHostSegment(
      MemorySegment memory, DataType type, long count, int device, Runnable release) {
    if (device < ANY_DEVICE) {
      throw new IllegalArgumentException(
          "device is " + device + "; it must be 0 or more, or ANY_DEVICE");
    }
    return of(MemoryType.HOST, sized(memory, type, count), type, count, device, release);
  }

  /**
   * Wraps native host memory of another owner, which any device of the reference backend may use.
   * Closing the buffer does not free the memory, but ends the use of the buffer and its slices.
   *
   * @param memory native memory that every thread can access, at least {@code count} elements long;
   *     its address is a multiple of the element size. The buffer keeps the scope of the memory
   *     reachable, but does not prevent its arena from being closed
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofHostSegment(MemorySegment memory, DataType type, long count) {
    return ofHostSegment(memory, type, count, ANY_DEVICE, NOTHING_TO_RELEASE);
  }

  /**
   * Wraps the remaining elements of a direct {@code java.nio} buffer, from its position to its
   * limit, which any device of the reference backend may use. The position and the limit are not
   * changed, and later changes of them have no effect. Closing the buffer does not free the memory,
   * but ends the use of the buffer and its slices.
   *
   * @param memory a direct buffer, not read-only, which the result keeps reachable; the address at
   *     its position is a multiple of the element size. Its byte order must be the native one,
   *     unless the elements are single bytes: a new {@code ByteBuffer} is big-endian, also after
   *     {@code slice} and {@code duplicate}, and needs {@code order(ByteOrder.nativeOrder())}. Its
   *     elements must match {@code type} in size and kind; a {@code ShortBuffer} may hold 16-bit
   *     floats, a {@code ByteBuffer} elements of any type
   * @param type the type of the elements
   * @return the buffer
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofDirectBuffer(java.nio.Buffer memory, DataType type) {
    MemorySegment segment = DirectMemory.of(memory, type);
    return ofHostSegment(segment, type, segment.byteSize() / type.bytes());
  }

  private static MemorySegment sized(MemorySegment memory, DataType type, long count) {
    Objects.requireNonNull(memory, "memory");
    long bytes = Objects.requireNonNull(type, "type").byteSize(count);
    if (!memory.scope().isAlive()) {
      throw new IllegalArgumentException(
          "memory was freed, because its arena is closed; a buffer needs memory that is still allocated");
    }
    if (!memory.isNative()) {
      throw new IllegalArgumentException(
          "memory is on the Java heap; a buffer needs native memory");
    }
    if (!memory.isAccessibleBy(ANY_THREAD)) {
      throw new IllegalArgumentException(
          "memory belongs to one thread; a buffer needs memory that every thread can access, such as from a shared arena");
    }
    if (memory.isReadOnly()) {
      throw new IllegalArgumentException("memory is read-only; a buffer needs writable memory");
    }
    if (memory.byteSize() < bytes) {
      throw new IllegalArgumentException(
          "memory has "
              + memory.byteSize()
              + " bytes; "
              + count
              + " elements of "
              + type
              + " need "
              + bytes);
    }
    return memory.asSlice(0, bytes);
  }

  /** Allocates memory of an existing device. */
  static Buffer ofDevice(BackendDriver backend, int device, DataType type, long count) {
    MemoryType memoryType =
        backend.deviceType() == DeviceType.CUDA ? MemoryType.DEVICE : MemoryType.HOST;
    return of(memoryType, backend.allocate(device, type, count), type, count, device);
  }

  /** Creates a buffer that owns new memory. */
  static Buffer of(
      MemoryType memoryType, Allocation allocation, DataType type, long count, int device) {
    try {
      return of(memoryType, allocation.memory(), type, count, device, allocation.release());
    } catch (RuntimeException | Error failure) {
      CloseAll.after(failure, allocation.release());
      throw failure;
    }
  }

  private static Buffer of(
      MemoryType memoryType,
      MemorySegment memory,
      DataType type,
      long count,
      int device,
      Runnable release) {
    Objects.requireNonNull(type, "type");
    Objects.requireNonNull(release, "release");
    long bytes = type.byteSize(count);
    long address = memory.address();
    if (address < 0 || bytes > Long.MAX_VALUE - address) {
      throw new IllegalArgumentException(
          "address is 0x%x; %d bytes from there are not addressable".formatted(address, bytes));
    }
    if (count > 0 && address == 0) {
      throw new IllegalArgumentException(
          "address is 0; it must be the address of " + count + " elements");
    }
    if (address % type.bytes() != 0) {
      throw new IllegalArgumentException(
          "address is 0x%x; it must be a multiple of %d, the size of %s"
              .formatted(address, type.bytes(), type));
    }
    Runnable counted =
        release == NOTHING_TO_RELEASE ? release : Statistics.allocated(bytes, release);
    MemoryOwner owner = new MemoryOwner(counted, memoryType.deviceType.deviceKey(device));
    return new Buffer(owner, false, memoryType, memory, type, count, device);
  }

  /** {@return the type of the elements} */
  public DataType type() {
    return memory.type();
  }

  /** {@return the number of elements} */
  public long count() {
    return memory.count();
  }

  /** {@return the size in bytes: {@code count() * type().bytes()}} */
  public long byteSize() {
    return memory.byteSize();
  }

  /** {@return the device that the memory belongs to, or {@link #ANY_DEVICE}} */
  public int device() {
    return device;
  }

  /** {@return the kind of memory} */
  public MemoryType memoryType() {
    return memoryType;
  }

  /**
   * {@return the address of the first element, for other native code} It is valid while the buffer
   * is open.
   *
   * @throws IllegalStateException if the buffer is closed
   */
  public long address() {
    checkOpen("buffer");
    return memory.address();
  }

  /**
   * {@return the memory of the elements, which the host may read and write once the streams that
   * use it have completed their work} It is valid while the buffer is open.
   *
   * @throws IllegalStateException if the buffer is closed, or is device memory, which the host
   *     cannot address
   */
  public MemorySegment segment() {
    checkOpen("buffer");
    if (memoryType == MemoryType.DEVICE) {
      throw new IllegalStateException(
          "the host cannot address device memory; copy it with copyTo: " + this);
    }
    return segment;
  }

  /**
   * {@return a view of a range of the elements, without a copy} Closing the view has no effect; it
   * is closed with the buffer that it is a view of.
   *
   * @param offset the index of the first element of the view
   * @param elements the number of elements of the view
   * @throws IllegalArgumentException if the range does not lie within this buffer
   * @throws IllegalStateException if the buffer is closed
   */
  public Buffer slice(long offset, long elements) {
    checkOpen("buffer");
    if (offset < 0 || elements < 0 || elements > count() - offset) {
      throw new IllegalArgumentException(
          "offset "
              + offset
              + " and elements "
              + elements
              + " do not lie within the buffer's count of "
              + count());
    }
    long start = offset * type().bytes();
    MemorySegment part =
        memoryType == MemoryType.DEVICE
            ? MemorySegment.ofAddress(memory.address() + start)
            : segment.asSlice(start, elements * type().bytes());
    return new Buffer(owner, true, memoryType, part, type(), elements, device);
  }

  /**
   * Enqueues a copy from host memory into all of this buffer. The source is read before this method
   * returns, so the caller may change or free it then. The copy is complete when the stream has
   * completed it. On CUDA, a stream stages 2 MiB or two copies; for more, this method waits until
   * the device has read the earlier ones, as {@link Stream#synchronize()} waits, with what that
   * throws. C: {@code cudaMemcpyAsync}.
   *
   * @param source host memory of exactly {@link #byteSize} bytes, on the heap or off it
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if the size or the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(MemorySegment source, Stream stream) {
    checkAccessible(source, "source");
    checkCopy(stream, source.byteSize(), "source");
    stream.checkCanWait("copyFromAsync");
    try {
      stream.driver().upload(source, memory);
    } finally {
      stream.uses(this, null);
    }
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed once this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float32, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(float[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "float", DataType.FLOAT32);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed once this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float64, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(double[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "double", DataType.FLOAT64);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed once this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int32 or uint32, or the size or
   *     the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(int[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "int", DataType.INT32, DataType.UINT32);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed once this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int64 or uint64, or the size or
   *     the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(long[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "long", DataType.INT64, DataType.UINT64);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed once this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int8 or uint8, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(byte[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "byte", DataType.INT8, DataType.UINT8);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Copies all of this buffer to host memory, in stream order, and waits for it as {@link
   * Stream#synchronize()} does, with what that throws. C: {@code cudaMemcpyAsync}.
   *
   * @param target writable host memory of exactly {@link #byteSize} bytes, on the heap or off it
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if the size or the device does not match, or the memory is
   *     read-only
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(MemorySegment target, Stream stream) {
    checkAccessible(target, "target");
    checkCopy(stream, target.byteSize(), "target");
    stream.checkCanWait("copyTo");
    ThreadScope.checkNothingKeptFor(stream, "copyTo");
    if (target.isReadOnly()) {
      throw new IllegalArgumentException("target is read-only");
    }
    try {
      stream.download(this, target);
    } finally {
      stream.uses(this, null);
    }
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float32, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(float[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "float", DataType.FLOAT32);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float64, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(double[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "double", DataType.FLOAT64);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int32 or uint32, or the size or
   *     the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(int[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "int", DataType.INT32, DataType.UINT32);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int64 or uint64, or the size or
   *     the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(long[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "long", DataType.INT64, DataType.UINT64);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int8 or uint8, or the size or the
   *     device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(byte[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "byte", DataType.INT8, DataType.UINT8);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Enqueues a copy of all of another buffer into this one; both must have the same type and count.
   * C: {@code cudaMemcpyAsync}.
   *
   * @param source the buffer to read; it may belong to another device of the same backend, or be
   *     pinned memory
   * @param stream the stream that orders the copy; a stream of this buffer's device or of the
   *     source's
   * @throws IllegalArgumentException if type, count or device do not match, or the buffers overlap
   * @throws IllegalStateException if a buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(Buffer source, Stream stream) {
    Objects.requireNonNull(source, "source");
    copy(source, "source", this, "this buffer", "copyFromAsync", stream);
  }

  /**
   * Enqueues a copy of all of this buffer into another one; both must have the same type and count.
   * C: {@code cudaMemcpyAsync}.
   *
   * @param target the buffer to write; it may belong to another device of the same backend, or be
   *     pinned memory
   * @param stream the stream that orders the copy; a stream of this buffer's device or of the
   *     target's
   * @throws IllegalArgumentException if type, count or device do not match, or the buffers overlap
   * @throws IllegalStateException if a buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void copyToAsync(Buffer target, Stream stream) {
    Objects.requireNonNull(target, "target");
    copy(this, "this buffer", target, "target", "copyToAsync", stream);
  }

  private static void copy(
      Buffer source,
      String sourceName,
      Buffer target,
      String targetName,
      String call,
      Stream stream) {
    Objects.requireNonNull(stream, "stream");
    target.checkOpen(targetName);
    source.checkOpen(sourceName);
    stream.checkOpen();
    stream.checkNotCaptured(call);
    checkSameType(source, sourceName, target, targetName);
    if (source.count() != target.count()) {
      throw new IllegalArgumentException(
          sourceName
              + " has count "
              + source.count()
              + "; "
              + targetName
              + " has "
              + target.count());
    }
    if (!target.usableOn(stream.deviceType(), stream.device())
        && !source.usableOn(stream.deviceType(), stream.device())) {
      throw new IllegalArgumentException(
          "stream " + stream + " is of the device of neither " + source + " nor " + target);
    }
    if (source.memoryType.deviceType() != target.memoryType.deviceType()) {
      throw new IllegalArgumentException(source + " and " + target + " are of different backends");
    }
    if (source.overlaps(source.byteSize(), target, target.byteSize())) {
      throw new IllegalArgumentException(source + " overlaps " + target);
    }
    try {
      stream.driver().copy(source.memory, target.memory);
    } finally {
      stream.uses(source, target);
    }
  }

  static void checkSameType(Buffer buffer, String argument, Buffer other, String otherArgument) {
    if (buffer.type() != other.type()) {
      throw new IllegalArgumentException(
          argument
              + " has type "
              + buffer.type()
              + "; it must be "
              + other.type()
              + ", as in "
              + otherArgument);
    }
  }

  /**
   * Sets every byte of this buffer to a value, in stream order. C: {@code cudaMemsetAsync}.
   *
   * @param value the value of each byte
   * @param stream the stream that orders the operation; a stream of this buffer's device
   * @throws IllegalArgumentException if the device does not match
   * @throws IllegalStateException if the buffer or the stream is closed, or the stream is being
   *     captured
   */
  public void fill(byte value, Stream stream) {
    checkCopy(stream, byteSize(), "buffer");
    try {
      stream.driver().fill(memory, value);
    } finally {
      stream.uses(this, null);
    }
  }

  private static void checkAccessible(MemorySegment memory, String argument) {
    Objects.requireNonNull(memory, argument);
    if (!memory.scope().isAlive()) {
      throw new IllegalStateException(argument + " is in an arena that is closed");
    }
    if (!memory.isAccessibleBy(Thread.currentThread())) {
      throw new IllegalArgumentException(argument + " is in a confined arena of another thread");
    }
  }

  private void checkArray(String argument, String element, DataType... allowed) {
    if (!List.of(allowed).contains(type())) {
      throw new IllegalArgumentException(
          argument + " is an array of " + element + "; " + this + " has type " + type());
    }
  }

  private void checkCopy(Stream stream, long bytes, String argument) {
    Objects.requireNonNull(stream, "stream");
    checkOpen("buffer");
    stream.checkOpen();
    stream.checkNotCaptured("a copy");
    if (bytes != byteSize()) {
      throw new IllegalArgumentException(
          argument + " has " + bytes + " bytes; " + this + " has " + byteSize());
    }
    if (!usableOn(stream.deviceType(), stream.device())) {
      throw new IllegalArgumentException("stream " + stream + " cannot reach " + this);
    }
  }

  /** Returns whether the buffer is open and has this device key. */
  boolean isOpenOn(int deviceKey) {
    return owner.isOpenOn(deviceKey);
  }

  /** Returns whether a device can use this memory; does not check whether the buffer is open. */
  boolean usableOn(DeviceType deviceType, int deviceIndex) {
    return memoryType.deviceType == deviceType && (device == deviceIndex || device == ANY_DEVICE);
  }

  /** {@return whether the buffer, or the buffer that it is a view of, has not been closed} */
  public boolean isOpen() {
    return owner.isOpen();
  }

  /** Records that a stream uses this memory until it has passed a progress value. */
  void usedBy(StreamProgress progress, long value) {
    owner.usedBy(progress, value);
  }

  void checkOpen(String argument) {
    if (!owner.isOpen()) {
      throw new IllegalStateException(argument + " is closed: " + this);
    }
  }

  /** Returns whether the first bytes of this buffer and the first bytes of another overlap. */
  boolean overlaps(long bytes, Buffer other, long otherBytes) {
    long start = memory.address();
    long otherStart = other.memory.address();
    return start < otherStart + otherBytes && otherStart < start + bytes;
  }

  /** Returns the distance in bytes from another buffer's first element to this one's. */
  long bytesAfter(Buffer other) {
    return memory.address() - other.memory.address();
  }

  /** Returns the memory for a driver, without checking that the buffer is open. */
  BufferMemory memory() {
    return memory;
  }

  /**
   * Prevents this buffer from being closed until the returned action has run, which can run
   * repeatedly.
   *
   * @param holder the user of the memory, for the message when closing the buffer fails
   * @throws IllegalStateException if the buffer is closed
   */
  Runnable retain(String holder) {
    synchronized (owner) {
      checkOpen("buffer");
      return owner.retain(holder);
    }
  }

  /**
   * Closes this buffer and its slices, and frees the memory if the buffer owns it. Has no effect on
   * a slice or when called again. Waits for pending copies that use the memory. If a collective is
   * pending that uses the memory, or that such a copy waits for, {@code close()} throws {@code
   * IllegalStateException}; the buffer is still closed, and its memory is freed once nccl4j detects
   * that the stream has completed that collective, for example in {@link Stream#synchronize} or
   * when the stream is closed. The memory also stays allocated, until nccl4j detects that the work
   * has completed, if a stream was closed before its work on the memory had ended. If CUDA waits
   * for other work of the device before it frees the memory, {@code close()} returns after a second
   * and the memory is freed in the background; a failure is then logged. C: {@code cudaFree},
   * {@code cudaFreeHost}.
   *
   * @throws IllegalStateException if a collective is pending that uses the memory, or a stream was
   *     closed before its work on the memory had ended. Also if this thread is capturing a graph,
   *     or if an object that must be closed first, such as a registration, still uses the memory;
   *     the buffer then stays open
   * @throws NcclTimeoutException if pending copies that use the memory have not completed within 30
   *     seconds; the memory is freed once nccl4j detects that they have
   * @throws CudaException if the CUDA runtime reports an error
   */
  @Override
  public void close() {
    ThreadScope.checkNotCapturing("closing a buffer");
    if (view || !owner.end(this)) {
      return;
    }
    MemoryOwner.Use use = owner.pending();
    while (use != null
        && !use.progress().stuck()
        && !use.progress().captured()
        && !use.progress().awaitsCollective()) {
      try {
        use.progress().drainCopies();
      } catch (RuntimeException | Error failure) {
        owner.releaseWhenUnused();
        throw failure;
      }
      use = owner.pending();
    }
    if (use == null) {
      owner.release();
      return;
    }
    boolean stuck = use.progress().stuck();
    owner.releaseWhenUnused();
    if (stuck) {
      throw new IllegalStateException(
          use.progress()
              + " was closed before its work on this buffer had ended; the memory stays allocated: "
              + this);
    }
    throw new IllegalStateException(
        "buffer is closed while a collective or a capture on "
            + use.progress()
            + " is pending; synchronize that stream, or an event after the collective, first: "
            + this);
  }

  /** Closes this buffer; its memory is freed once no stream uses it. */
  void closeWhenUnused() {
    if (owner.end(this)) {
      owner.releaseWhenUnused();
    }
  }

  @Override
  public String toString() {
    return "Buffer[%s x %d, %s %s, 0x%x]"
        .formatted(
            type(),
            count(),
            memoryType,
            device == ANY_DEVICE ? "any device" : "device " + device,
            memory.address());
  }
}
