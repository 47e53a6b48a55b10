package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.CudaResults;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Memory that CUDA allocates. Any thread may allocate and close it. */
public final class CudaMemory {
  private CudaMemory() {}

  /**
   * Allocates memory of a device, for the caller to close. C: {@code cudaMalloc}, {@code cudaFree}.
   *
   * @param device whose memory
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @throws CudaException if there is not enough memory
   */
  public static Buffer allocate(int device, DataType type, long count) {
    long bytes = count * type.bytes();
    if (bytes == 0) {
      return Buffer.ofDeviceAddress(0, type, 0, device);
    }
    MemorySegment memory = CudaDevices.on(device, () -> allocate(bytes));
    return Buffer.ofDeviceAddress(
        memory.address(),
        type,
        count,
        device,
        () -> CudaResults.check(cudart_h.cudaFree(memory), "cudaFree"));
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
   * @throws CudaException if there is not enough memory
   */
  public static Buffer allocatePinned(DataType type, long count) {
    long bytes = count * type.bytes();
    if (bytes == 0) {
      return Buffer.ofPinnedSegment(MemorySegment.NULL, type, 0, () -> {});
    }
    MemorySegment memory = pin(bytes);
    return Buffer.ofPinnedSegment(memory, type, count, () -> unpin(memory));
  }

  /** Allocates page-locked memory, of the global scope. */
  @SuppressWarnings("restricted") // The runtime has just told that so many bytes lie there.
  static MemorySegment pin(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaHostAllocPortable() | cudart_h.cudaHostAllocMapped();
      CudaResults.check(cudart_h.cudaHostAlloc(address, bytes, flags), "cudaHostAlloc");
      return address.get(ValueLayout.ADDRESS, 0).reinterpret(bytes);
    }
  }

  static void unpin(MemorySegment memory) {
    CudaResults.check(cudart_h.cudaFreeHost(memory), "cudaFreeHost");
  }
}
