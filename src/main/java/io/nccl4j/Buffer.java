package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.Allocation;
import io.nccl4j.spi.BufferMemory;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * A run of elements of one {@link DataType} that collectives read and write, outside the Java heap.
 *
 * <p>A buffer either owns its memory (from {@link Communicator#newBuffer}, {@link
 * Backend#newBuffer} and {@link Backend#newPinnedBuffer}), which {@link #close} gives back, or
 * stands for somebody else's ({@link #ofDeviceAddress(long, DataType, long, int)}, {@link
 * #ofHostSegment(MemorySegment, DataType, long)}, {@link #ofDirectBuffer}; a {@link #slice} for the
 * buffer's that it was taken from), whose owner must keep it alive until every stream has passed
 * the last operation that uses it. The same holds for an owner's own {@code close}: synchronize
 * first.
 *
 * <p>Any thread may use a buffer; operations on its contents are ordered by their streams and by
 * nothing else. None may close it while another is in a call with it.
 */
public final class Buffer implements AutoCloseable {
  /** The {@link #device} of host memory that every device of its backend can use. */
  public static final int ANY_DEVICE = -1;

  // Never started: any thread but the one that a confined arena belongs to.
  private static final Thread ANY_THREAD = Thread.ofPlatform().unstarted(() -> {});

  /** Where a buffer's memory lies, and so who can use it. */
  public enum MemoryType {
    /** Memory of a CUDA device; the host cannot address it. */
    DEVICE(DeviceType.CUDA),
    /** Page-locked host memory that CUDA devices can address too. */
    PINNED(DeviceType.CUDA),
    /** Host memory of the reference backend. */
    HOST(DeviceType.HOST);

    private final DeviceType deviceType;

    MemoryType(DeviceType platform) {
      this.deviceType = platform;
    }

    /** {@return the platform whose devices can address this memory} */
    public DeviceType deviceType() {
      return deviceType;
    }
  }

  /**
   * Keeps a buffer's owner from being closed, for as long as somebody uses the memory in ways that
   * no stream knows of. Any thread may let go; doing so again does nothing.
   */
  public static final class Retention implements AutoCloseable {
    private final MemoryOwner owner;
    private final String holder;

    private Retention(MemoryOwner owner, String holder) {
      this.owner = owner;
      this.holder = holder;
    }

    String holder() {
      return holder;
    }

    /** Lets go of the memory. */
    @Override
    public void close() {
      owner.remove(this);
    }
  }

  private final MemoryOwner owner;
  private final boolean view;
  private final MemoryType memoryType;
  // What the host can read and write; for device memory no more than the address.
  private final MemorySegment segment;
  private final BufferMemory memory;
  private final int device;

  private Buffer(
      MemoryOwner owner,
      boolean view,
      MemoryType space,
      MemorySegment segment,
      DataType type,
      long count,
      int device) {
    this.owner = owner;
    this.view = view;
    this.memoryType = space;
    this.segment = segment;
    MemorySegment pointer =
        space == MemoryType.HOST ? segment : MemorySegment.ofAddress(segment.address());
    this.memory = new BufferMemory(pointer, type, count);
    this.device = device;
  }

  /**
   * Makes a buffer of CUDA device memory that somebody else owns, such as a framework's tensor.
   * Closing it frees nothing, but ends its use, as it does for its slices. Nothing native is
   * called: that the memory exists is the caller's word.
   *
   * @param address the device address of the first element, as {@code cudaMalloc} gives it; a
   *     multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the CUDA device that the memory belongs to, as numbered in this process
   * @return the buffer
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofDeviceAddress(long address, DataType type, long count, int device) {
    return ofDeviceAddress(address, type, count, device, () -> {});
  }

  /**
   * Makes a buffer of CUDA device memory whose owner is to be told when it is closed.
   *
   * @param address the device address of the first element, as {@code cudaMalloc} gives it; a
   *     multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the CUDA device that the memory belongs to, as numbered in this process
   * @param release runs once, when the buffer was closed and no stream uses it any more: in the
   *     thread that closes it, which gets what it throws, or in the one that finds the last of its
   *     streams past it, where that is logged
   * @return the buffer; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofDeviceAddress(
      long address, DataType type, long count, int device, Runnable release) {
    Arguments.atLeast(device, "device", 0);
    return of(MemoryType.DEVICE, MemorySegment.ofAddress(address), type, count, device, release);
  }

  /**
   * Makes a buffer of page-locked host memory, which a CUDA device can address under the same
   * address.
   *
   * @param memory native memory that is page-locked, of the global scope, at least {@code count}
   *     elements long; the first one's address is a multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param release runs once, when the buffer was closed and no stream uses it any more: in the
   *     thread that closes it, which gets what it throws, or in the one that finds the last of its
   *     streams past it, where that is logged
   * @return the buffer; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofPinnedSegment(
      MemorySegment memory, DataType type, long count, Runnable release) {
    return of(MemoryType.PINNED, sized(memory, type, count), type, count, ANY_DEVICE, release);
  }

  /**
   * Makes a buffer of native host memory, for communicators of the reference backend.
   *
   * @param memory native memory that every thread can access, at least {@code count} elements long;
   *     the first one's address is a multiple of the element size
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @param device the reference backend's device that may use it, or {@link #ANY_DEVICE}
   * @param release runs once, when the buffer was closed and no stream uses it any more: in the
   *     thread that closes it, which gets what it throws, or in the one that finds the last of its
   *     streams past it, where that is logged
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
   * Makes a buffer of native host memory that somebody else owns and any device of the reference
   * backend may use. Closing it frees nothing, but ends its use, as it does for its slices.
   *
   * @param memory native memory that every thread can access, at least {@code count} elements long;
   *     the first one's address is a multiple of the element size. The buffer keeps its scope
   *     reachable, and no arena from being closed
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer
   * @throws IllegalArgumentException if an argument is out of range
   */
  public static Buffer ofHostSegment(MemorySegment memory, DataType type, long count) {
    return ofHostSegment(memory, type, count, ANY_DEVICE, () -> {});
  }

  /**
   * Makes a buffer of what is left of a direct {@code java.nio} buffer, from its position to its
   * limit, which any device of the reference backend may use. Neither is changed or heeded later.
   * Closing it frees nothing, but ends its use, as it does for its slices.
   *
   * @param memory a direct buffer, not read-only, which this one keeps reachable; the address at
   *     its position is a multiple of the element size. Its elements are in this machine's byte
   *     order and of the type's size: those of a {@code FloatBuffer} and the like are floats, those
   *     of a {@code ShortBuffer} may be 16-bit floats too, and the bytes of a {@code ByteBuffer}
   *     are taken as whatever the type says, in this machine's byte order
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
          "memory was freed; a buffer needs what its arena still has");
    }
    if (!memory.isNative()) {
      throw new IllegalArgumentException(
          "memory lies on the Java heap; a buffer needs native memory");
    }
    if (!memory.isAccessibleBy(ANY_THREAD)) {
      throw new IllegalArgumentException(
          "memory belongs to one thread; a buffer needs memory that every thread can access, as of a shared arena");
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

  /** Makes a buffer that owns new memory. */
  static Buffer of(MemoryType space, Allocation from, DataType type, long count, int device) {
    try {
      return of(space, from.memory(), type, count, device, from.release());
    } catch (RuntimeException | Error failure) {
      CloseAll.after(failure, from.release());
      throw failure;
    }
  }

  private static Buffer of(
      MemoryType space,
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
          "address is 0x%x; %d bytes from there on are not addressable".formatted(address, bytes));
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
    MemoryOwner owner = new MemoryOwner(release, space.deviceType.deviceKey(device));
    return new Buffer(owner, false, space, memory, type, count, device);
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

  /** {@return where the memory lies} */
  public MemoryType memoryType() {
    return memoryType;
  }

  /**
   * {@return the address of the first element: the way out to other native code} It is valid while
   * the buffer's owner is open.
   *
   * @throws IllegalStateException if the owner is closed
   */
  public long address() {
    checkOpen("buffer");
    return memory.address();
  }

  /**
   * {@return the memory of the elements, for the host to read and write once the streams that use
   * it have passed} It is valid while the buffer's owner is open.
   *
   * @throws IllegalStateException if the owner is closed, or if this is device memory, which the
   *     host cannot address
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
   * {@return a view of some of the elements, without a copy} Closing it does nothing; it ends with
   * this buffer's owner.
   *
   * @param offset the first element of the view
   * @param elements how many elements the view has
   * @throws IllegalArgumentException if the range does not lie within this buffer
   * @throws IllegalStateException if the owner is closed
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
   * Enqueues a copy from host memory into all of this buffer. The contents are taken before this
   * method returns, so the caller may change or free the host memory at once; the buffer has them
   * when the stream has passed. C: {@code cudaMemcpyAsync}.
   *
   * @param source host memory of exactly {@link #byteSize} bytes, on the heap or off it
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if the size or the device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(MemorySegment source, Stream stream) {
    checkAccessible(source, "source");
    checkCopy(stream, source.byteSize(), "source");
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
   * @param source {@link #count} elements; may be changed when this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float32, or the size or the
   *     device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(float[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "float", DataType.FLOAT32, DataType.FLOAT32);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed when this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float64, or the size or the
   *     device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(double[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "double", DataType.FLOAT64, DataType.FLOAT64);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Enqueues a copy of a whole array into all of this buffer, as {@link
   * #copyFromAsync(MemorySegment, Stream)} does.
   *
   * @param source {@link #count} elements; may be changed when this method has returned
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int32 or uint32, or the size or
   *     the device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(int[] source, Stream stream) {
    Objects.requireNonNull(source, "source");
    checkArray("source", "int", DataType.INT32, DataType.UINT32);
    copyFromAsync(MemorySegment.ofArray(source), stream);
  }

  /**
   * Copies all of this buffer to host memory, in stream order, and waits for it as {@link
   * Stream#synchronize()} does, with what that throws. C: {@code cudaMemcpyAsync}.
   *
   * @param target writable host memory of exactly {@link #byteSize} bytes, on the heap or off it
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if the size or the device does not fit, or the memory is
   *     read-only
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(MemorySegment target, Stream stream) {
    checkAccessible(target, "target");
    checkCopy(stream, target.byteSize(), "target");
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
   *     device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(float[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "float", DataType.FLOAT32, DataType.FLOAT32);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not float64, or the size or the
   *     device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(double[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "double", DataType.FLOAT64, DataType.FLOAT64);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Copies all of this buffer to an array, in stream order, and waits for it, as {@link
   * #copyTo(MemorySegment, Stream)} does.
   *
   * @param target {@link #count} elements
   * @param stream the stream that orders the copy; a stream of this buffer's device
   * @throws IllegalArgumentException if this buffer's type is not int32 or uint32, or the size or
   *     the device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyTo(int[] target, Stream stream) {
    Objects.requireNonNull(target, "target");
    checkArray("target", "int", DataType.INT32, DataType.UINT32);
    copyTo(MemorySegment.ofArray(target), stream);
  }

  /**
   * Enqueues a copy of all of another buffer into this one; both must have the same type and count.
   * C: {@code cudaMemcpyAsync}.
   *
   * @param source the buffer to read; it may lie on another device of the same backend or in pinned
   *     memory
   * @param stream the stream that orders the copy; a stream of this buffer's device or of the
   *     source's
   * @throws IllegalArgumentException if type, count or device do not fit, or the two overlap
   * @throws IllegalStateException if an owner or the stream is closed, or the stream is being
   *     captured
   */
  public void copyFromAsync(Buffer source, Stream stream) {
    Objects.requireNonNull(source, "source");
    Objects.requireNonNull(stream, "stream");
    checkOpen("buffer");
    source.checkOpen("source");
    stream.checkOpen();
    stream.checkNotCaptured("copyFromAsync");
    checkSameType(source, "source", this, "this buffer");
    if (source.count() != count()) {
      throw new IllegalArgumentException(
          "source has count " + source.count() + "; this buffer has " + count());
    }
    if (!usableOn(stream.deviceType(), stream.device())
        && !source.usableOn(stream.deviceType(), stream.device())) {
      throw new IllegalArgumentException(
          "stream " + stream + " is of the device of neither " + source + " nor " + this);
    }
    if (source.memoryType.deviceType() != memoryType.deviceType()) {
      throw new IllegalArgumentException(
          "source " + source + " and " + this + " are of different backends");
    }
    if (source.overlaps(source.byteSize(), this, byteSize())) {
      throw new IllegalArgumentException("source " + source + " overlaps " + this);
    }
    try {
      stream.driver().copy(source.memory, memory);
    } finally {
      stream.uses(source, this);
    }
  }

  static void checkSameType(Buffer buffer, String argument, Buffer other, String otherArgument) {
    if (buffer.type() != other.type()) {
      throw new IllegalArgumentException(
          argument + " has type " + buffer.type() + "; " + otherArgument + " has " + other.type());
    }
  }

  /**
   * Enqueues setting every byte of this buffer. C: {@code cudaMemsetAsync}.
   *
   * @param value what every byte becomes
   * @param stream the stream that orders it, of this buffer's device
   * @throws IllegalArgumentException if the device does not fit
   * @throws IllegalStateException if the owner or the stream is closed, or the stream is being
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
      throw new IllegalStateException(argument + " lies in an arena that is closed");
    }
    if (!memory.isAccessibleBy(Thread.currentThread())) {
      throw new IllegalArgumentException(
          argument + " belongs to another thread, whose confined arena it lies in");
    }
  }

  private void checkArray(String argument, String element, DataType type, DataType other) {
    if (type() != type && type() != other) {
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

  /** Returns whether the buffer is open and of this very place. */
  boolean isAt(int place) {
    return owner.isAt(place);
  }

  /** Returns whether work on a device can use this memory; the owner's state is not looked at. */
  boolean usableOn(DeviceType platform, int user) {
    return memoryType.deviceType == platform && (device == user || device == ANY_DEVICE);
  }

  /** {@return whether the buffer, or what it is a view of, has not been closed} */
  public boolean isOpen() {
    return owner.isOpen();
  }

  /** Remembers that work on a stream uses this memory until the stream has passed a ticket. */
  void usedBy(StreamFence progress, long ticket) {
    owner.usedBy(progress, ticket);
  }

  void checkOpen(String argument) {
    if (!owner.isOpen()) {
      throw new IllegalStateException(argument + " is closed: " + this);
    }
  }

  /** Returns whether the first bytes of this buffer and of another lie in the same memory. */
  boolean overlaps(long bytes, Buffer other, long otherBytes) {
    long mine = memory.address();
    long others = other.memory.address();
    return mine < others + otherBytes && others < mine + bytes;
  }

  /** Returns how many bytes lie between another buffer's first element and this one's. */
  long bytesAfter(Buffer other) {
    return memory.address() - other.memory.address();
  }

  /** Returns the elements for a driver, without looking whether they are still there. */
  BufferMemory memory() {
    return memory;
  }

  /**
   * Holds this buffer's memory: until the hold is closed, closing the owner is refused. For what
   * gives the address to others for longer than one operation.
   *
   * @param holder who holds it, for the message of the refusal
   * @return the hold; the caller closes it
   * @throws IllegalStateException if the owner is closed
   */
  public Retention retain(String holder) {
    Objects.requireNonNull(holder, "holder");
    synchronized (owner) {
      checkOpen("buffer");
      Retention retention = new Retention(owner, holder);
      owner.add(retention);
      return retention;
    }
  }

  /**
   * Ends this buffer and its slices, and frees the memory if it owns it; does nothing on a slice or
   * when called again. Copies that use the memory are waited for. If a collective is pending that
   * uses it, or that such a copy waits for, the buffer is still closed and an exception says so;
   * the memory is freed when nccl4j next sees that the stream has passed, for example at its {@link
   * Stream#synchronize} or its close. C: {@code cudaFree}, {@code cudaFreeHost}.
   *
   * @throws IllegalStateException if a collective is pending that uses the memory; or, and nothing
   *     is done then, if this thread is capturing a graph, or the memory is held by what must be
   *     closed before it, such as a registration
   * @throws NcclTimeoutException if CUDA has not freed the memory within 30 seconds, because work
   *     on its device hangs; it is freed when that ends
   * @throws CudaException if CUDA refuses
   */
  @Override
  public void close() {
    ThreadScope.checkNotCapturing("closing a buffer");
    if (view || !owner.end(this)) {
      return;
    }
    MemoryOwner.Use use = owner.pending();
    while (use != null && !use.fence().awaitsCollective() && !use.fence().captured()) {
      try {
        use.fence().drainCopies();
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
    owner.releaseWhenUnused();
    throw new IllegalStateException(
        "buffer is closed while a collective or a capture on "
            + use.fence()
            + " is pending; synchronize that stream, or an event after the collective, first: "
            + this);
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
