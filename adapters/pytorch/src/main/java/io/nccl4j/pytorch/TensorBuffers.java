package io.nccl4j.pytorch;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Stream;
import io.nccl4j.libtorch.Libtorch;
import java.lang.ref.Reference;
import java.util.Objects;
import org.bytedeco.pytorch.Tensor;

/** Tensors of the JavaCPP presets for PyTorch as buffers of nccl4j. Any thread may use them. */
public final class TensorBuffers {
  private TensorBuffers() {}

  /**
   * Makes a tensor's memory a buffer, without a copy: what {@link Libtorch#buffer} promises, the
   * tensor's own life included. The tensor may be closed, or leave its {@code PointerScope}, while
   * the buffer is in use.
   *
   * @param tensor a defined, dense, contiguous tensor
   * @param name what to call the tensor in messages, such as {@code layer1.weight}
   * @param comm whose rank will use the buffer: on NCCL the tensor must be on its device, on the
   *     reference in host memory
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
      // Its deallocator must not run before libtorch has counted our reference.
      Reference.reachabilityFence(tensor);
    }
  }

  /** Throws if PyTorch keeps a sign apart from the memory, where no collective would see it. */
  private static void checkPlain(Tensor tensor, String name) {
    if (tensor.__dispatch_is_neg()) {
      throw new IllegalArgumentException(
          "tensor "
              + name
              + " has the negative bit; its memory must have its values, as after resolve_neg()");
    }
    if (tensor.__dispatch_is_conj()) {
      throw new IllegalArgumentException(
          "tensor "
              + name
              + " has the conjugate bit; its memory must have its values, as after resolve_conj()");
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
