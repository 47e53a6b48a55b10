package io.nccl4j.internal;

import io.nccl4j.bindings.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Page-locked host memory that every device can address. Allocating and freeing it may wait for all
 * devices.
 */
public final class PinnedMemory extends KeptMemory {
  /** The memory of buffers. */
  public static final PinnedMemory BUFFERS = new PinnedMemory();

  /** Chunks of {@link #CHUNK_BYTES}, through which streams copy; counted apart, to reserve some. */
  public static final PinnedMemory CHUNKS = new PinnedMemory();

  /** The size of a chunk. */
  public static final long CHUNK_BYTES = 1 << 20;

  // For four streams that copy: a stream uses two.
  private static final int CHUNKS_OF_A_RANK = 8;

  private PinnedMemory() {
    super("cudaHostAlloc", "cudaFreeHost", false, OpenRanks::several);
  }

  /**
   * Allocates chunks for the streams of this process's ranks where there are several, before they
   * connect: later that could wait for a peer's kernel, which would wait for this rank.
   */
  public static void reserveForRanks(int device) {
    int together = OpenRanks.mostTogether();
    if (together > 1) {
      CHUNKS.reserve(device, CHUNK_BYTES, CHUNKS_OF_A_RANK * together);
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
