package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.spi.Allocation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.stream.IntStream;

/**
 * Pinned (page-locked) host memory that every device can access. Allocating and freeing it may wait
 * for all devices.
 */
public final class PinnedMemory extends MemoryPool {
  /** The cache for buffers. */
  private static final PinnedMemory BUFFERS = new PinnedMemory();

  /**
   * The cache for staging chunks of {@link #CHUNK_BYTES}; separate, so that some can be reserved.
   */
  static final PinnedMemory CHUNKS = new PinnedMemory();

  /** The size of a chunk. */
  static final long CHUNK_BYTES = 1 << 20;

  // Four streams that copy, with two chunks each.
  private static final int CHUNKS_PER_RANK = 8;

  private PinnedMemory() {
    super("cudaHostAlloc", "cudaFreeHost", false);
  }

  /**
   * Allocates chunks for the streams of this process's ranks, if there are several, before they
   * connect. Allocating later could wait for a peer's kernel that waits for this rank.
   */
  public static void reserveForRanks(int device) {
    int together = OpenRanks.maxTogether();
    if (together > 1) {
      CHUNKS.reserve(device, CHUNK_BYTES, CHUNKS_PER_RANK * together);
    }
  }

  /** Allocates the memory of a buffer, with an existing device context if there is one. */
  public static Allocation newBuffer(long bytes) {
    if (bytes == 0) {
      return new Allocation(MemorySegment.NULL, () -> {});
    }
    int device = PlatformThreads.call("cudaGetDevice", PinnedMemory::deviceInUse);
    Piece piece = BUFFERS.take(device, bytes);
    return new Allocation(piece.memory(), () -> put(piece));
  }

  /**
   * Returns a device with an existing context, if there is one. Pinning memory needs a context, and
   * would create it on the current device.
   */
  private static int deviceInUse() {
    int current = CurrentDevice.get();
    if (PrimaryContexts.active(current)) {
      return current;
    }
    return IntStream.range(0, CurrentDevice.count())
        .filter(PrimaryContexts::active)
        .findFirst()
        .orElse(current);
  }

  @Override
  @SuppressWarnings("restricted") // The runtime has just allocated that many bytes.
  protected MemorySegment allocate(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaHostAllocPortable() | cudart_h.cudaHostAllocMapped();
      CudaResults.check(cudart_h.cudaHostAlloc(address, bytes, flags), "cudaHostAlloc");
      return address.get(ValueLayout.ADDRESS, 0).reinterpret(bytes);
    }
  }

  @Override
  protected void free(MemorySegment memory) {
    CudaResults.check(cudart_h.cudaFreeHost(memory), "cudaFreeHost");
  }
}
