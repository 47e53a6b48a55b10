package io.nccl4j.pytorch;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Stream;
import io.nccl4j.libtorch.Libtorch;
import java.lang.ref.Reference;
import java.util.Objects;
import org.bytedeco.pytorch.Tensor;

/** Wraps tensors of the JavaCPP presets for PyTorch as nccl4j buffers. Thread-safe. */
public final class TensorBuffers {
  private TensorBuffers() {}

  /**
   * Wraps a tensor's memory as a buffer, without a copy, as {@link Libtorch#buffer} does. The
   * tensor or its {@code PointerScope} may be closed while the buffer is in use.
   *
   * @param tensor a defined, dense, contiguous tensor
   * @param name the tensor's name in messages, such as {@code layer1.weight}
   * @param comm the communicator of the rank that uses the buffer: on NCCL the tensor must be on
   *     its device, on the reference backend in host memory
   * @return a buffer of all elements in row-major order, for the caller to close
   * @throws NullPointerException if an argument is null
   * @throws IllegalArgumentException if the tensor is closed, undefined, of a type that NCCL lacks,
   *     on another device, not strided (sparse, mkldnn) or not contiguous, or has the negative or
   *     the conjugate bit
   * @throws io.nccl4j.libtorch.LibtorchException if a function of libtorch fails
   */
  public static Buffer of(Tensor tensor, String name, Communicator comm) {
    Objects.requireNonNull(tensor, "tensor");
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(comm, "comm");
    try {
      if (tensor.address() != 0 && tensor.defined()) {
        checkPlain(tensor, name);
      }
      return Libtorch.loaded().buffer(tensor.address(), name, comm);
    } finally {
      // The tensor must stay reachable until libtorch has taken our reference.
      Reference.reachabilityFence(tensor);
    }
  }

  /**
   * Throws if the values' sign is not stored in the memory, so that collectives would ignore it.
   */
  private static void checkPlain(Tensor tensor, String name) {
    if (tensor.__dispatch_is_neg()) {
      throw new IllegalArgumentException(
          "tensor "
              + name
              + " has the negative bit; its memory must contain its values, as after"
              + " resolve_neg()");
    }
    if (tensor.__dispatch_is_conj()) {
      throw new IllegalArgumentException(
          "tensor "
              + name
              + " has the conjugate bit; its memory must contain its values, as after"
              + " resolve_conj()");
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
