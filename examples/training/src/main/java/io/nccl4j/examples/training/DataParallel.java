package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Platform;
import io.nccl4j.Stream;
import io.nccl4j.pytorch.TensorBuffers;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.ReducerConfig;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.pytorch.FunctionPostHook;
import org.bytedeco.pytorch.Node;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorVector;
import org.bytedeco.pytorch.global.torch;

/**
 * A PyTorch model under a {@link GradientReducer}: its gradients lie in the reducer's buckets, and
 * PyTorch's engine marks each as it has accumulated it, so that a bucket is reduced while backward
 * computes the next one.
 *
 * <p>Nothing is copied between PyTorch and the ranks: a parameter's buffer is the parameter, and
 * its {@code grad} is its part of a bucket. So gradients are zeroed after a step, not dropped.
 */
final class DataParallel implements AutoCloseable {
  private final Communicator comm;
  private final Stream compute;
  private final List<Buffer> values = new ArrayList<>();
  private final GradientReducer reducer;
  private final List<Hooked> hooked = new ArrayList<>();
  private volatile RuntimeException failure;

  /**
   * A parameter whose gradient lies in a bucket. The engine refers to node and mark, but does not
   * own them.
   */
  private record Hooked(Tensor parameter, Tensor gradient, Node accumulates, Mark mark, long key) {
    void release() {
      accumulates.del_post_hook(key);
      // The bucket's memory goes with the reducer.
      parameter.mutable_grad().put(new Tensor());
    }
  }

  /**
   * Gives every rank rank 0's parameters, and takes over their gradients.
   *
   * @param parameters all parameters of the model, in the order in which forward uses them
   */
  DataParallel(Communicator comm, Map<String, Tensor> parameters, ReducerConfig config) {
    this.comm = comm;
    // PyTorch's engine computes backward on the stream that forward was on. Without a GPU it has
    // computed what it returns, and any stream will do, since there is nothing to wait for.
    compute =
        comm.backend().platform() == Platform.CUDA
            ? TensorBuffers.currentStream(comm)
            : comm.newStream();
    try {
      List<Parameter> registered = new ArrayList<>();
      parameters.forEach((name, tensor) -> registered.add(register(name, tensor)));
      reducer = GradientReducer.open(comm, registered, config, compute);
      for (Parameter parameter : registered) {
        hooked.add(hook(parameters.get(parameter.name()), parameter));
      }
    } catch (RuntimeException | Error cause) {
      values.forEach(Buffer::close);
      compute.close();
      throw cause;
    }
  }

  private Parameter register(String name, Tensor tensor) {
    Buffer value = TensorBuffers.of(tensor, name, comm);
    values.add(value);
    return Parameter.of(name, value);
  }

  private Hooked hook(Tensor tensor, Parameter parameter) {
    Tensor gradient = view(reducer.gradient(parameter), tensor);
    tensor.mutable_grad().put(gradient);
    // The node that adds to a parameter's gradient is where any use of the parameter leads to.
    Node accumulates = tensor.view_as(tensor).grad_fn().next_edge(0).function();
    Mark mark = new Mark(parameter);
    return new Hooked(tensor, gradient, accumulates, mark, accumulates.add_post_hook(mark));
  }

  /** What the engine calls when it has accumulated a gradient. */
  private final class Mark extends FunctionPostHook {
    private final Parameter parameter;

    Mark(Parameter parameter) {
      this.parameter = parameter;
    }

    @Override
    public TensorVector apply(TensorVector outputs, TensorVector inputs) {
      try {
        reducer.ready(parameter, compute);
      } catch (RuntimeException refused) {
        // Would come out of backward as its text alone.
        failure = failure == null ? refused : failure;
      }
      return outputs;
    }
  }

  /** A tensor over a bucket's memory, like another one in shape and device. */
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

  /** Memory that JavaCPP neither made nor frees. */
  private static final class Address extends Pointer {
    Address(long address) {
      this.address = address;
    }
  }

  /** {@return the stream that PyTorch computes on} */
  Stream compute() {
    return compute;
  }

  /** {@return how many buckets there are} */
  int buckets() {
    return reducer.buckets().size();
  }

  /**
   * Ends backward: what PyTorch is asked for next sees averaged gradients.
   *
   * @throws IllegalStateException if a gradient could not be marked
   */
  void finish() {
    if (failure != null) {
      throw new IllegalStateException("backward could not mark a gradient", failure);
    }
    reducer.finish(compute);
    if (comm.backend().platform() == Platform.HOST) {
      // PyTorch on a processor knows no streams: it reads at once.
      compute.synchronize();
    }
  }

  /** Makes the gradients zero for the next backward, which adds to them. */
  void zeroGradients() {
    hooked.forEach(each -> each.gradient().zero_());
  }

  @Override
  public void close() {
    compute.synchronize();
    hooked.forEach(Hooked::release);
    reducer.close();
    values.forEach(Buffer::close);
    compute.close();
  }
}
