package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.internal.cuda.DeviceMemory;
import io.nccl4j.internal.cuda.PinnedBuffers;
import io.nccl4j.spi.Allocation;
import org.jspecify.annotations.NullMarked;

/**
 * Allocates memory with CUDA. Any thread may allocate and close it; {@link Buffer#close} frees it.
 *
 * <p>CUDA may wait for the device's kernels before it allocates or frees memory, and an NCCL kernel
 * waits for its peers. Therefore, while two ranks of one communicator are open in this process, the
 * memory of closed buffers is kept: an allocation of exactly the same size reuses it, and the rest
 * is freed once these ranks are closed, or if memory runs short. Other libraries must have finished
 * with the memory before it is closed. Ranks that share a device must allocate before any of them
 * communicates, or synchronize with each other first.
 */
@NullMarked
public final class CudaMemory {
  private CudaMemory() {}

  /**
   * {@return whether a buffer's memory was allocated by {@link #allocate}; NCCL cannot share such
   * memory as a window}
   *
   * @param buffer the buffer
   */
  public static boolean allocated(Buffer buffer) {
    return DeviceMemory.allocated(buffer.address());
  }

  /**
   * Allocates memory on a device. C: {@code cudaMalloc}, {@code cudaFree}.
   *
   * @param device the index of the device to allocate on, from 0
   * @param type the element type
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory, for the caller to close; its contents are undefined
   * @throws CudaException if there is not enough memory
   * @throws io.nccl4j.NcclTimeoutException if the device has been busy for 30 s
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   * @throws IllegalArgumentException if the count is out of range
   */
  public static Buffer allocate(int device, DataType type, long count) {
    Allocation allocation = DeviceMemory.allocate(device, type.byteSize(count));
    return Buffer.ofDeviceAddress(
        allocation.memory().address(), type, count, device, allocation.release());
  }

  /**
   * Allocates pinned (page-locked) host memory that every device can access. It uses the context of
   * this thread's device (device 0 on a virtual thread), or another device's context if only that
   * one exists. C: {@code cudaHostAlloc}, {@code cudaFreeHost}.
   *
   * @param type the element type
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory, for the caller to close; its contents are undefined
   * @throws CudaException if there is not enough memory
   * @throws io.nccl4j.NcclTimeoutException if a device has been busy for 30 s
   * @throws IllegalArgumentException if the count is out of range
   * @throws io.nccl4j.LibraryNotFoundException if {@code libcudart} cannot be loaded
   */
  public static Buffer allocatePinned(DataType type, long count) {
    Allocation allocation = PinnedBuffers.allocate(type.byteSize(count));
    return Buffer.ofPinnedSegment(allocation.memory(), type, count, allocation.release());
  }
}
