package io.nccl4j.examples.training;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceType;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.stream.LongStream;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.pytorch.Device;
import org.bytedeco.pytorch.LinearImpl;
import org.bytedeco.pytorch.NoGradGuard;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorVector;
import org.bytedeco.pytorch.global.torch;

/** Three linear layers with rectifiers in between. */
final class Net {
  private static final int LAYERS = 3;

  private final LinearImpl[] layers = new LinearImpl[LAYERS];
  private final int size;
  private final Device device;

  /**
   * Creates a model on the device of a communicator.
   *
   * @param size the number of inputs and outputs of each layer
   * @param seed the seed of the parameters; models with the same seed are equal
   */
  Net(Communicator comm, int size, long seed) {
    this.size = size;
    device =
        new Device(
            comm.backend().deviceType() == DeviceType.CUDA ? "cuda:" + comm.device() : "cpu");
    SplittableRandom random = new SplittableRandom(seed);
    for (int i = 0; i < LAYERS; i++) {
      layers[i] = new LinearImpl(size, size);
      layers[i].to(device, false);
      fill(layers[i], random);
    }
  }

  @SuppressWarnings("try") // The guard is only opened and closed.
  private void fill(LinearImpl layer, SplittableRandom random) {
    try (NoGradGuard assigns = new NoGradGuard()) {
      layer.weight().copy_(uniform(random, size, size));
      layer.bias().copy_(uniform(random, size));
    }
  }

  /** Returns values that keep the layers' outputs about as large as their inputs. */
  private Tensor uniform(SplittableRandom random, long... shape) {
    double bound = Math.sqrt(6.0 / size);
    long count = LongStream.of(shape).reduce(1, Math::multiplyExact);
    float[] values = new float[Math.toIntExact(count)];
    for (int i = 0; i < values.length; i++) {
      values[i] = (float) random.nextDouble(-bound, bound);
    }
    return Tensor.create(values, shape);
  }

  /** {@return the parameters by name, in the order in which forward uses them} */
  Map<String, Tensor> parameters() {
    Map<String, Tensor> parameters = new LinkedHashMap<>();
    for (int i = 0; i < LAYERS; i++) {
      parameters.put("layer" + (i + 1) + ".weight", layers[i].weight());
      parameters.put("layer" + (i + 1) + ".bias", layers[i].bias());
    }
    return parameters;
  }

  /** {@return the length in bytes of all parameters of a model} */
  static long bytes(int size) {
    return (long) LAYERS * size * (size + 1) * Float.BYTES;
  }

  /** Writes all parameters. */
  void write(OutputStream out) throws IOException {
    byte[] row = new byte[size * Float.BYTES];
    for (Tensor parameter : parameters().values()) {
      // On a GPU a copy, which is freed here and not at some later garbage collection.
      try (Tensor host = parameter.cpu()) {
        BytePointer values = new BytePointer(host.data_ptr());
        for (long at = 0; at < host.nbytes(); at += row.length) {
          values.position(at).get(row);
          out.write(row);
        }
      }
    }
  }

  /** Reads all parameters. */
  @SuppressWarnings("try") // The guard is only opened and closed.
  void read(DataInputStream in) throws IOException {
    byte[] row = new byte[size * Float.BYTES];
    try (NoGradGuard assigns = new NoGradGuard()) {
      for (Tensor parameter : parameters().values()) {
        // The parameter itself, unless it is on a GPU.
        try (Tensor host = parameter.cpu()) {
          BytePointer values = new BytePointer(host.data_ptr());
          for (long at = 0; at < host.nbytes(); at += row.length) {
            in.readFully(row);
            values.position(at).put(row);
          }
          parameter.copy_(host);
        }
      }
    }
  }

  TensorVector parameterVector() {
    return new TensorVector(parameters().values().toArray(Tensor[]::new));
  }

  /** {@return the mean squared error over the rows, with the graph for backward} */
  Tensor loss(Batch batch) {
    Tensor x = batch.inputs(size).to(device, torch.ScalarType.Float);
    Tensor target = batch.targets(size).to(device, torch.ScalarType.Float);
    for (int i = 0; i < LAYERS; i++) {
      x = layers[i].forward(x);
      x = i < LAYERS - 1 ? x.relu() : x;
    }
    return torch.mse_loss(x, target);
  }
}
