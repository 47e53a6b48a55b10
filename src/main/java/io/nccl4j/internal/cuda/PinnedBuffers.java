package io.nccl4j.internal.cuda;

import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.spi.Allocation;
import java.lang.foreign.MemorySegment;
import java.util.stream.IntStream;

/** Allocates pinned (page-locked) host memory that every device can access. */
public final class PinnedBuffers {
  private PinnedBuffers() {}

  /** Allocates memory, with an existing device context if there is one. */
  public static Allocation allocate(long bytes) {
    if (bytes == 0) {
      return new Allocation(MemorySegment.NULL, () -> {});
    }
    int device = PlatformThreads.call("cudaGetDevice", PinnedBuffers::deviceInUse);
    KeptMemory.Piece piece = PinnedMemory.BUFFERS.take(device, bytes);
    return new Allocation(piece.memory(), () -> PinnedMemory.BUFFERS.put(piece));
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
}
