package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.Deadline;
import io.nccl4j.internal.NativeLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.IntSupplier;

/**
 * Memory that CUDA allocates. Any thread may allocate and close it; {@link Buffer#close} frees it.
 */
public final class CudaMemory {
  private static final Duration FREE_TIMEOUT = Duration.ofSeconds(30);

  // The runtime does not say how memory was allocated, and NCCL finds out only when its ranks
  // already wait for each other. By address, with the byte after the last.
  private static final ConcurrentSkipListMap<Long, Long> ALLOCATED = new ConcurrentSkipListMap<>();

  private CudaMemory() {}

  /**
   * {@return whether a buffer's memory comes from {@link #allocate}, and so cannot be shared as
   * NCCL shares windows}
   *
   * @param buffer the buffer
   */
  public static boolean allocated(Buffer buffer) {
    Map.Entry<Long, Long> below = ALLOCATED.floorEntry(buffer.address());
    return below != null && buffer.address() < below.getValue();
  }

  /**
   * Allocates memory of a device, for the caller to close. C: {@code cudaMalloc}, {@code cudaFree}.
   *
   * @param device the index of the device whose memory it is, from 0
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory; its contents are undefined
   * @throws CudaException if there is not enough memory
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   * @throws IllegalArgumentException if the count is out of its range
   */
  public static Buffer allocate(int device, DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofDeviceAddress(0, type, 0, device);
    }
    MemorySegment memory = CudaDevices.on(device, () -> allocate(bytes));
    ALLOCATED.put(memory.address(), memory.address() + bytes);
    return Buffer.ofDeviceAddress(
        memory.address(),
        type,
        count,
        device,
        () -> {
          ALLOCATED.remove(memory.address());
          free("cudaFree", device, () -> cudart_h.cudaFree(memory));
        });
  }

  private static MemorySegment allocate(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
      CudaResults.check(cudart_h.cudaMalloc(address, bytes), "cudaMalloc");
      return address.get(ValueLayout.ADDRESS, 0);
    }
  }

  /**
   * Allocates page-locked host memory that every device can address, for the caller to close. C:
   * {@code cudaHostAlloc}, {@code cudaFreeHost}.
   *
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory; its contents are undefined
   * @throws CudaException if there is not enough memory
   * @throws IllegalArgumentException if the count is out of its range
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   */
  public static Buffer allocatePinned(DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofPinnedSegment(MemorySegment.NULL, type, 0, () -> {});
    }
    MemorySegment memory = pin(bytes);
    return Buffer.ofPinnedSegment(memory, type, count, () -> unpin(memory));
  }

  /** Allocates page-locked memory, of the global scope. */
  @SuppressWarnings("restricted") // The runtime has just told that so many bytes lie there.
  static MemorySegment pin(long bytes) {
    NativeLibrary.CUDART.load();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaHostAllocPortable() | cudart_h.cudaHostAllocMapped();
      CudaResults.check(cudart_h.cudaHostAlloc(address, bytes, flags), "cudaHostAlloc");
      return address.get(ValueLayout.ADDRESS, 0).reinterpret(bytes);
    }
  }

  static void unpin(MemorySegment memory) {
    free("cudaFreeHost", 0, () -> cudart_h.cudaFreeHost(memory));
  }

  /**
   * Frees memory, which waits for the device, and so perhaps for a collective whose peer has died.
   */
  private static void free(String function, int device, IntSupplier call) {
    Deadline.runUninterrupted(
        function,
        FREE_TIMEOUT,
        "the work on device " + device + "; abort the communicator that hangs",
        () -> {
          CudaDevices.use(device);
          CudaResults.check(call.getAsInt(), function);
        });
  }
}
