package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.cuda.MemoryPool;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Allocates device memory with NCCL, such that it can be registered and used in windows. */
final class NcclAllocator {
  private static final MemoryPool MEMORY = new RegistrableMemory();

  private NcclAllocator() {}

  static Buffer allocate(int device, DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofDeviceAddress(0, type, 0, device);
    }
    MemoryPool.Piece piece = MEMORY.take(device, bytes);
    return Buffer.ofDeviceAddress(
        piece.memory().address(), type, count, device, () -> MemoryPool.put(piece));
  }

  /**
   * NCCL frees memory by unmapping it, or with {@code cudaFree} if it cannot map memory. Only the
   * latter is known to wait for the device.
   */
  private static final class RegistrableMemory extends MemoryPool {
    RegistrableMemory() {
      super("ncclMemAlloc", "ncclMemFree", true);
    }

    @Override
    protected MemorySegment allocate(long bytes) {
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
        NcclResults.check(nccl_h.ncclMemAlloc(address, bytes), "ncclMemAlloc");
        return address.get(ValueLayout.ADDRESS, 0);
      }
    }

    @Override
    protected void free(MemorySegment memory) {
      NcclResults.check(nccl_h.ncclMemFree(memory), "ncclMemFree");
    }
  }
}
