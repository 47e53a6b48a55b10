package io.nccl4j.djl;

import ai.djl.ndarray.NDArray;
import ai.djl.pytorch.engine.PtNDArray;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Stream;
import io.nccl4j.libtorch.Libtorch;
import java.lang.ref.Reference;
import java.util.Objects;

/** NDArrays of DJL's PyTorch engine as buffers of nccl4j. Any thread may use them. */
public final class NDArrayBuffers {
  private NDArrayBuffers() {}

  /**
   * Makes an array's memory a buffer, without a copy: what {@link Libtorch#buffer} promises, the
   * array's own life included. The array, or its {@code NDManager}, may be closed while the buffer
   * is in use.
   *
   * @param array a dense, contiguous array of the PyTorch engine
   * @param name what to call the array in messages, such as {@code layer1.weight}
   * @param comm whose rank will use the buffer: on NCCL the array must be on its device, on the
   *     reference in host memory
   * @return a buffer of all elements in row-major order, for the caller to close
   * @throws IllegalArgumentException if the array is of another engine, closed, of a type that NCCL
   *     lacks, on another device, not strided (sparse, mkldnn) or not contiguous
   * @throws io.nccl4j.libtorch.LibtorchException if a function of libtorch fails
   */
  public static Buffer of(NDArray array, String name, Communicator comm) {
    Objects.requireNonNull(array, "array");
    if (!(array instanceof PtNDArray tensor)) {
      throw new IllegalArgumentException(
          "array %s is a %s; it must be of DJL's PyTorch engine"
              .formatted(name, array.getClass().getName()));
    }
    if (tensor.isReleased()) {
      throw new IllegalArgumentException("array " + name + " was closed");
    }
    try {
      return Libtorch.loaded().buffer(tensor.getHandle(), name, comm);
    } finally {
      // Its deallocator must not run before libtorch has counted our reference.
      Reference.reachabilityFence(array);
    }
  }

  /**
   * Wraps the stream on which PyTorch enqueues this thread's work now: what {@link
   * Libtorch#currentStream} promises.
   *
   * @param comm a communicator of NCCL, whose device is meant
   * @return the stream, for the caller to close; PyTorch's own is left alone by that
   * @throws IllegalStateException if PyTorch's CUDA part is not loaded
   */
  public static Stream currentStream(Communicator comm) {
    return Libtorch.loaded().currentStream(comm.device());
  }
}
