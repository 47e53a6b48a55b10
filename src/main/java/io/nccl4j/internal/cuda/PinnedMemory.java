package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Pinned (page-locked) host memory that every device can access. Allocating and freeing it may wait
 * for all devices.
 */
public final class PinnedMemory extends KeptMemory {
  /** The cache for buffers. */
  public static final PinnedMemory BUFFERS = new PinnedMemory();

  /**
   * The cache for staging chunks of {@link #CHUNK_BYTES}; separate, so that some can be reserved.
   */
  public static final PinnedMemory CHUNKS = new PinnedMemory();

  /** The size of a chunk. */
  public static final long CHUNK_BYTES = 1 << 20;

  // Four streams that copy, with two chunks each.
  private static final int CHUNKS_PER_RANK = 8;

  private PinnedMemory() {
    super("cudaHostAlloc", "cudaFreeHost", false, OpenRanks::several);
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
