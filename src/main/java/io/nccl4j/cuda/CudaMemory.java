package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.internal.cuda.DeviceMemory;
import io.nccl4j.internal.cuda.PinnedBuffers;
import io.nccl4j.spi.Allocation;

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
  private CudaMemory() {}

  /**
   * {@return whether a buffer's memory comes from {@link #allocate}, and so cannot be shared as
   * NCCL shares windows}
   *
   * @param buffer the buffer
   */
  public static boolean allocated(Buffer buffer) {
    return DeviceMemory.allocated(buffer.address());
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
    Allocation made = DeviceMemory.allocate(device, type.byteSize(count));
    return Buffer.ofDeviceAddress(made.memory().address(), type, count, device, made.release());
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
    Allocation made = PinnedBuffers.allocate(type.byteSize(count));
    return Buffer.ofPinnedSegment(made.memory(), type, count, made.release());
  }
}
