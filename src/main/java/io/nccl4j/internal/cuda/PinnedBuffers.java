package io.nccl4j.internal.cuda;

import io.nccl4j.internal.KeptMemory;
import io.nccl4j.internal.PinnedMemory;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.PrimaryContexts;
import io.nccl4j.spi.Allocation;
import java.lang.foreign.MemorySegment;
import java.util.stream.IntStream;

/** Page-locked host memory that every device can address. */
public final class PinnedBuffers {
  private PinnedBuffers() {}

  /** Allocates memory, by the context of a device that has one if any has. */
  public static Allocation allocate(long bytes) {
    if (bytes == 0) {
      return new Allocation(MemorySegment.NULL, () -> {});
    }
    int device = PlatformThreads.call("cudaGetDevice", PinnedBuffers::deviceInUse);
    KeptMemory.Piece piece = PinnedMemory.BUFFERS.take(device, bytes);
    return new Allocation(piece.memory(), () -> PinnedMemory.BUFFERS.put(piece));
  }

  /**
   * Returns a device that has a context already, if any has: pinning memory needs one, and would
   * create it on whatever device is current.
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
}
