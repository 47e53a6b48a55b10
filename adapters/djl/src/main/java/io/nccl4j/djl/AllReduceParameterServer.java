package io.nccl4j.djl;

import ai.djl.ndarray.NDArray;
import ai.djl.training.ParameterServer;
import ai.djl.training.optimizer.Optimizer;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DeviceType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Trains one model on all ranks of a communicator: the ranks start with the parameters of rank 0,
 * average their gradients, and make the same update. For DJL's {@code ParameterStore}, and for
 * {@link DataParallelTrainer}. Gradients are averaged in their own memory, without a copy.
 *
 * <p>DJL numbers parameters differently in each process and updates them in any order. So an update
 * only records its parameter; that of the last one averages all gradients, in the order in which
 * the parameters were initialized, and updates all parameters. The ranks must initialize their
 * parameters in the same order, as those of equal models are, and train and freeze the same ones.
 * On CUDA the averages are enqueued on PyTorch's stream. Used by one thread.
 */
public final class AllReduceParameterServer implements ParameterServer {
  private final Communicator comm;
  private final Optimizer optimizer;
  private final Stream stream;

  /** In the order of initialization. */
  private final Map<String, NDArray> initialized = new LinkedHashMap<>();

  private final Map<String, NDArray> updated = new HashMap<>();

  /**
   * Creates the server of a rank.
   *
   * @param comm the rank's communicator, which must stay open as long as this server; on NCCL the
   *     parameters must be on its device, on the reference backend in host memory
   * @param optimizer updates a parameter, given the average of its gradients
   */
  public AllReduceParameterServer(Communicator comm, Optimizer optimizer) {
    this.comm = Objects.requireNonNull(comm, "comm");
    this.optimizer = Objects.requireNonNull(optimizer, "optimizer");
    stream =
        comm.backend().deviceType() == DeviceType.CUDA
            ? NDArrayBuffers.currentStream(comm)
            : comm.newStream();
  }

  /**
   * Sets a parameter to its value on rank 0, and waits for that.
   *
   * @param parameterId identifies the parameter in this process
   * @param value the parameter, dense and contiguous; only the first array is used
   * @throws IllegalArgumentException as {@link NDArrayBuffers#of} does
   * @throws io.nccl4j.NcclException as {@link Stream#synchronize()} does
   */
  @Override
  public void init(String parameterId, NDArray[] value) {
    try (Buffer buffer = NDArrayBuffers.of(value[0], "parameter " + value[0].getName(), comm)) {
      comm.broadcast(buffer, 0, stream);
      stream.synchronize();
    }
    initialized.put(parameterId, value[0]);
  }

  /**
   * Records a parameter to update; if it is the last one that has a gradient, averages all
   * gradients and updates all parameters.
   *
   * @param parameterId identifies the parameter in this process
   * @param grads not used: the gradient is that of {@code params} when it is averaged
   * @param params the parameter, which stays open until the update; one array, since a rank has one
   *     device
   * @throws IllegalArgumentException if the parameter was not initialized or is on several devices,
   *     or as {@link NDArrayBuffers#of} does for a gradient
   * @throws IllegalStateException if the parameter is updated twice before all others have been
   * @throws io.nccl4j.NcclException as {@link Stream#synchronize()} does
   */
  @Override
  public void update(String parameterId, NDArray[] grads, NDArray[] params) {
    if (!initialized.containsKey(parameterId)) {
      throw new IllegalArgumentException("parameter " + parameterId + " was not initialized");
    }
    if (params.length != 1) {
      throw new IllegalArgumentException(
          "parameter %s is on %d devices; a rank trains on one"
              .formatted(parameterId, params.length));
    }
    if (updated.putIfAbsent(parameterId, params[0]) != null) {
      throw new IllegalStateException(
          "parameter %s is updated twice before others; update each that has a gradient once a step"
              .formatted(parameterId));
    }
    if (updated.size() == initialized.values().stream().filter(NDArray::hasGradient).count()) {
      updateAll();
    }
  }

  private void updateAll() {
    try (Gradients gradients = new Gradients(new ArrayList<>())) {
      initialized.forEach(
          (id, first) -> {
            NDArray parameter = updated.get(id);
            if (parameter != null) {
              gradients.all.add(Gradient.of(id, parameter, first.getName(), comm));
            }
          });
      Group.run(
          () ->
              gradients.all.forEach(
                  it -> comm.allReduce(it.buffer, it.buffer, ReduceOp.AVG, stream)));
      stream.synchronize();
      gradients.all.forEach(it -> optimizer.update(it.id, it.parameter, it.array));
    } finally {
      updated.clear();
    }
  }

  private record Gradient(String id, NDArray parameter, NDArray array, Buffer buffer) {
    static Gradient of(String id, NDArray parameter, String name, Communicator comm) {
      NDArray array = parameter.getGradient();
      try {
        Buffer buffer = NDArrayBuffers.of(array, "gradient of " + name, comm);
        return new Gradient(id, parameter, array, buffer);
      } catch (RuntimeException e) {
        array.close();
        throw e;
      }
    }
  }

  private record Gradients(List<Gradient> all) implements AutoCloseable {
    @Override
    public void close() {
      RuntimeException first = null;
      for (Gradient it : all) {
        it.array.close();
        try {
          it.buffer.close();
        } catch (RuntimeException e) { // The wait has failed. Closes the others, too.
          if (first == null) {
            first = e;
          } else {
            first.addSuppressed(e);
          }
        }
      }
      if (first != null) {
        throw first;
      }
    }
  }

  /** Closes what this server has created: not the communicator, nor the optimizer. */
  @Override
  public void close() {
    stream.close();
  }
}
