package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.KeptMemory;
import io.nccl4j.internal.NativeLibrary;
import io.nccl4j.internal.OpenRanks;
import io.nccl4j.internal.PinnedMemory;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.PrimaryContexts;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.stream.IntStream;

/**
 * Memory that CUDA allocates. Any thread may allocate and close it; {@link Buffer#close} frees it.
 *
 * <p>CUDA may wait for the kernels of the device before it allocates or frees, and a kernel of
 * NCCL's waits for its peers. So while two ranks of one communicator are open in this process,
 * memory that is closed is kept: an allocation of exactly the same size uses it again, and the rest
 * is freed when these ranks have closed, or when memory is short. What other libraries do with the
 * memory must be over before it is closed. Ranks that share a device allocate before any of them
 * communicates, or wait for each other in between.
 */
public final class CudaMemory {
  private static final KeptMemory DEVICE_MEMORY = new DeviceMemory();

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
   * @throws io.nccl4j.NcclTimeoutException if the device has been busy for 30 s
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   * @throws IllegalArgumentException if the count is out of its range
   */
  public static Buffer allocate(int device, DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofDeviceAddress(0, type, 0, device);
    }
    NativeLibrary.CUDART.load();
    KeptMemory.Piece piece = DEVICE_MEMORY.take(device, bytes);
    long address = piece.memory().address();
    ALLOCATED.put(address, address + bytes);
    return Buffer.ofDeviceAddress(
        address,
        type,
        count,
        device,
        () -> {
          ALLOCATED.remove(address);
          DEVICE_MEMORY.put(piece);
        });
  }

  private static final class DeviceMemory extends KeptMemory {
    DeviceMemory() {
      super("cudaMalloc", "cudaFree", true, OpenRanks::several);
    }

    @Override
    protected MemorySegment allocate(long bytes) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
        CudaResults.check(cudart_h.cudaMalloc(address, bytes), "cudaMalloc");
        return address.get(ValueLayout.ADDRESS, 0);
      }
    }

    @Override
    protected void free(MemorySegment memory) {
      CudaResults.check(cudart_h.cudaFree(memory), "cudaFree");
    }
  }

  /**
   * Allocates page-locked host memory that every device can address, for the caller to close. It
   * uses the context of this thread's device (device 0 in a virtual thread), or that of another
   * device if only that has one. C: {@code cudaHostAlloc}, {@code cudaFreeHost}.
   *
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory; its contents are undefined
   * @throws CudaException if there is not enough memory
   * @throws io.nccl4j.NcclTimeoutException if a device has been busy for 30 s
   * @throws IllegalArgumentException if the count is out of its range
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   */
  public static Buffer allocatePinned(DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofPinnedSegment(MemorySegment.NULL, type, 0, () -> {});
    }
    int device = PlatformThreads.call("cudaGetDevice", CudaMemory::deviceInUse);
    KeptMemory.Piece piece = PinnedMemory.BUFFERS.take(device, bytes);
    return Buffer.ofPinnedSegment(
        piece.memory(), type, count, () -> PinnedMemory.BUFFERS.put(piece));
  }

  /**
   * Returns a device that has a context already, if any has: pinning memory needs one, and would
   * create it on whatever device is current.
   */
  private static int deviceInUse() {
    int current = CudaDevices.current();
    if (PrimaryContexts.active(current)) {
      return current;
    }
    return IntStream.range(0, CudaDevices.count())
        .filter(PrimaryContexts::active)
        .findFirst()
        .orElse(current);
  }
}
