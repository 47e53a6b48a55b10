package io.nccl4j.djl;

import ai.djl.ndarray.NDArray;
import ai.djl.pytorch.engine.PtNDArray;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Stream;
import io.nccl4j.libtorch.Libtorch;
import java.lang.ref.Reference;
import java.util.Objects;

/** Wraps NDArrays of DJL's PyTorch engine as nccl4j buffers. Thread-safe. */
public final class NDArrayBuffers {
  private NDArrayBuffers() {}

  /**
   * Wraps an array's memory as a buffer, without a copy, as {@link Libtorch#buffer} does. The
   * array, or its {@code NDManager}, may be closed while the buffer is in use.
   *
   * @param array a dense, contiguous array of the PyTorch engine
   * @param name the array's name in messages, such as {@code layer1.weight}
   * @param comm the communicator of the rank that uses the buffer: on NCCL the array must be on its
   *     device, on the reference backend in host memory
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
      // The array must stay reachable until libtorch has taken our reference.
      Reference.reachabilityFence(array);
    }
  }

  /**
   * Wraps the stream on which PyTorch currently enqueues this thread's work, as {@link
   * Libtorch#currentStream} does.
   *
   * @param comm an NCCL communicator, which determines the device
   * @return the stream, for the caller to close; this does not close PyTorch's stream
   * @throws IllegalStateException if PyTorch's CUDA part is not loaded
   */
  public static Stream currentStream(Communicator comm) {
    return Libtorch.loaded().currentStream(comm.device());
  }
}
