package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DeviceType;
import io.nccl4j.Stream;
import io.nccl4j.pytorch.TensorBuffers;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.pytorch.FunctionPostHook;
import org.bytedeco.pytorch.Node;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorVector;
import org.bytedeco.pytorch.global.torch;

/**
 * A PyTorch model under a {@link GradientReducer}: its gradients are stored in the reducer's
 * buckets, and a hook of PyTorch's engine marks each gradient once it is accumulated, so that a
 * bucket is reduced while backward computes the next one.
 *
 * <p>Nothing is copied: a parameter's buffer is the parameter's memory, and its {@code grad} is a
 * slice of a bucket. Gradients must therefore be zeroed after a step, not dropped.
 */
final class DataParallel implements AutoCloseable {
  private final Communicator comm;
  private final Stream compute;

  /** The clean-up steps, in reverse order of acquisition. */
  private final Deque<Runnable> undo = new ArrayDeque<>();

  private final GradientReducer reducer;
  private final List<Hooked> hooked = new ArrayList<>();
  private volatile RuntimeException failure;

  /**
   * A parameter whose gradient is stored in a bucket. Keeps node and hook reachable, since the
   * engine does not own them.
   */
  private record Hooked(Tensor gradient, Node accumulates, GradientHook markReady) {}

  /**
   * Copies rank 0's parameters to all ranks, and moves the gradients into buckets.
   *
   * @param parameters all parameters of the model, in the order in which forward uses them
   */
  DataParallel(Communicator comm, Map<String, Tensor> parameters, ReducerConfig config) {
    this.comm = comm;
    // PyTorch's engine runs backward on the stream of forward. Without a GPU its work is complete
    // when it returns, so any stream will do.
    compute =
        comm.backend().deviceType() == DeviceType.CUDA
            ? TensorBuffers.currentStream(comm)
            : comm.newStream();
    undo.push(compute::close);
    try {
      List<Parameter> registered = new ArrayList<>();
      parameters.forEach((name, tensor) -> registered.add(register(name, tensor)));
      reducer = GradientReducer.open(comm, registered, config, compute);
      undo.push(reducer::close);
      for (Parameter parameter : registered) {
        hooked.add(hook(parameters.get(parameter.name()), parameter));
      }
      undo.push(compute::synchronize);
    } catch (RuntimeException | Error cause) {
      closeAfter(cause);
      throw cause;
    }
  }

  private Parameter register(String name, Tensor tensor) {
    Buffer value = TensorBuffers.of(tensor, name, comm);
    undo.push(value::close);
    return Parameter.of(name, value);
  }

  private Hooked hook(Tensor tensor, Parameter parameter) {
    Tensor gradient = view(reducer.gradient(parameter), tensor);
    tensor.mutable_grad().put(gradient);
    // The bucket's memory is freed with the reducer.
    undo.push(() -> tensor.mutable_grad().put(new Tensor()));
    // The node that accumulates a parameter's gradient is the next edge of any use of it.
    Node accumulates = tensor.view_as(tensor).grad_fn().next_edge(0).function();
    GradientHook hook = new GradientHook(parameter);
    long key = accumulates.add_post_hook(hook);
    undo.push(() -> accumulates.del_post_hook(key));
    return new Hooked(gradient, accumulates, hook);
  }

  /** Called by the engine when it has accumulated a gradient. */
  private final class GradientHook extends FunctionPostHook {
    private final Parameter parameter;

    GradientHook(Parameter parameter) {
      this.parameter = parameter;
    }

    @Override
    public TensorVector apply(TensorVector outputs, TensorVector inputs) {
      try {
        reducer.markReady(parameter, compute);
      } catch (RuntimeException cause) {
        // If thrown here, backward would report only its message.
        failure = failure == null ? cause : failure;
      }
      return outputs;
    }
  }

  /** Returns a tensor over a bucket's memory, with the shape and device of another one. */
  private static Tensor view(Buffer buffer, Tensor like) {
    return torch.from_blob(new Address(buffer.address()), sizes(like), like.options());
  }

  private static long[] sizes(Tensor tensor) {
    long[] sizes = new long[(int) tensor.dim()];
    for (int dim = 0; dim < sizes.length; dim++) {
      sizes[dim] = tensor.size(dim);
    }
    return sizes;
  }

  /** Memory that JavaCPP neither allocates nor frees. */
  private static final class Address extends Pointer {
    Address(long address) {
      this.address = address;
    }
  }

  /** {@return the stream that PyTorch computes on} */
  Stream compute() {
    return compute;
  }

  /** {@return the number of buckets} */
  int buckets() {
    return reducer.buckets().size();
  }

  /**
   * Ends backward: PyTorch's later work sees averaged gradients.
   *
   * @throws IllegalStateException if a gradient could not be marked
   */
  void finish() {
    if (failure != null) {
      throw new IllegalStateException("backward could not mark a gradient", failure);
    }
    reducer.finish(compute);
    if (comm.backend().deviceType() == DeviceType.HOST) {
      // PyTorch on CPUs has no streams and would read at once.
      compute.synchronize();
    }
  }

  /** Zeroes the gradients for the next backward, which accumulates into them. */
  void zeroGradients() {
    hooked.forEach(each -> each.gradient().zero_());
  }

  /** Releases everything, even if some of it fails; throws the first failure. */
  @Override
  public void close() {
    while (!undo.isEmpty()) {
      try {
        undo.pop().run();
      } catch (RuntimeException | Error first) {
        closeAfter(first);
        throw first;
      }
    }
  }

  /** Releases everything after a failure, adding further failures to it as suppressed. */
  private void closeAfter(Throwable failure) {
    while (!undo.isEmpty()) {
      try {
        undo.pop().run();
      } catch (RuntimeException | Error another) {
        if (another != failure) {
          failure.addSuppressed(another);
        }
      }
    }
  }
}
