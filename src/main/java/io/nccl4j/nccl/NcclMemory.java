package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.Deadline;
import io.nccl4j.internal.NcclResults;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;

/** Device memory that NCCL allocates, in the ways that all of its registrations can use. */
final class NcclMemory {
  private static final Duration FREE_TIMEOUT = Duration.ofSeconds(30);

  private NcclMemory() {}

  static Buffer allocate(int device, DataType type, long count) {
    long bytes = type.byteSize(count);
    if (bytes == 0) {
      return Buffer.ofDeviceAddress(0, type, 0, device);
    }
    MemorySegment memory = CudaDevices.on(device, () -> allocate(bytes));
    return Buffer.ofDeviceAddress(
        memory.address(), type, count, device, () -> free(device, memory));
  }

  private static MemorySegment allocate(long bytes) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment address = arena.allocate(ValueLayout.ADDRESS);
      NcclResults.check(nccl_h.ncclMemAlloc(address, bytes), "ncclMemAlloc");
      return address.get(ValueLayout.ADDRESS, 0);
    }
  }

  /** Frees memory, which waits for the device, as {@code cudaFree} does. */
  private static void free(int device, MemorySegment memory) {
    Deadline.runUninterrupted(
        "ncclMemFree",
        FREE_TIMEOUT,
        "the work on device " + device + "; abort the communicator that hangs",
        () -> {
          CudaDevices.use(device);
          NcclResults.check(nccl_h.ncclMemFree(memory), "ncclMemFree");
        });
  }
}
