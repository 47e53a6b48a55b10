package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.spi.Allocation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;

/** Allocates device memory with CUDA. */
public final class DeviceMemory {
  private static final MemoryPool MEMORY = new Kept();

  // The end address of each allocation by its start address. The runtime does not report how memory
  // was allocated, and NCCL finds out only when its ranks already wait for each other.
  private static final ConcurrentSkipListMap<Long, Long> ALLOCATED = new ConcurrentSkipListMap<>();

  private DeviceMemory() {}

  /**
   * Returns whether memory was allocated by {@link #allocate}. NCCL cannot share such memory as a
   * window.
   */
  public static boolean allocated(long address) {
    Map.Entry<Long, Long> below = ALLOCATED.floorEntry(address);
    return below != null && address < below.getValue();
  }

  /** Allocates memory on a device. */
  public static Allocation allocate(int device, long bytes) {
    if (bytes == 0) {
      return new Allocation(MemorySegment.NULL, () -> {});
    }
    NativeLibrary.CUDART.load();
    MemoryPool.Piece piece = MEMORY.take(device, bytes);
    long address = piece.memory().address();
    ALLOCATED.put(address, address + bytes);
    return new Allocation(
        MemorySegment.ofAddress(address),
        () -> {
          ALLOCATED.remove(address);
          MemoryPool.put(piece);
        });
  }

  private static final class Kept extends MemoryPool {
    Kept() {
      super("cudaMalloc", "cudaFree", true);
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
}
