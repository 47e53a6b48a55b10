package io.nccl4j.examples.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceType;
import io.nccl4j.Stream;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.training.ReducerConfig;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import org.bytedeco.pytorch.Device;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.global.torch;
import picocli.CommandLine.Command;

/** Data-parallel training with one parameter and one step, small enough to check by hand. */
@Command(
    name = "ddp-simple",
    customSynopsis = "examples/training/run-simple [--procs N] [--backend NAME]",
    description =
        "Averages one gradient over all ranks. The parameter w is 5, the loss of rank r is"
            + " w * 7 * r, so its gradient is 7 * r; with two ranks these are 0 and 7, and the"
            + " average on both is 3.5.")
public final class DdpSimple extends Ranks {
  private static final float W = 5;
  private static final float FACTOR = 7;

  private DdpSimple() {}

  /**
   * Runs the command.
   *
   * @param args the command line; {@code --help} explains it
   */
  public static void main(String[] args) {
    main(new DdpSimple(), args);
  }

  @Override
  int run(Communicator comm) {
    float own = FACTOR * comm.rank();
    float averaged = averagedGradient(comm);
    print(comm, own, averaged);
    if (isMean(averaged, comm.size())) {
      return 0;
    }
    System.err.printf(
        "rank %d: the averaged gradient is %s; expected %s, except for rounding%n",
        comm.rank(), averaged, mean(comm.size()));
    return Commands.FAILED;
  }

  private static float mean(int ranks) {
    return FACTOR * (ranks - 1) / 2f;
  }

  /**
   * Returns whether a value is the mean of all ranks' gradients except for rounding. The factor
   * 1/n, its product with each gradient, and n - 1 additions of positive numbers are each off by at
   * most half an ulp; the other half is for products of these errors.
   */
  static boolean isMean(float averaged, int ranks) {
    return Math.abs(averaged - mean(ranks)) <= (ranks + 1) * Math.ulp(1f) * mean(ranks);
  }

  /** Prints the values of all ranks on rank 0, so that the lines are in rank order. */
  private static void print(Communicator comm, float own, float averaged) {
    MemorySegment host = Arena.ofAuto().allocate(ValueLayout.JAVA_FLOAT, 2L * comm.size());
    try (Stream stream = comm.newStream();
        Buffer send = comm.newBuffer(DataType.FLOAT32, 2);
        Buffer all = comm.newBuffer(DataType.FLOAT32, 2L * comm.size())) {
      send.copyFromAsync(MemorySegment.ofArray(new float[] {own, averaged}), stream);
      comm.gather(send, all, 0, stream);
      all.copyTo(host, stream);
    }
    for (int rank = 0; comm.rank() == 0 && rank < comm.size(); rank++) {
      System.out.printf(
          "rank %d of %d: local gradient %.1f, averaged %.1f%n",
          rank,
          comm.size(),
          host.getAtIndex(ValueLayout.JAVA_FLOAT, 2L * rank),
          host.getAtIndex(ValueLayout.JAVA_FLOAT, 2L * rank + 1));
    }
  }

  /** {@return the gradient of w after the step, averaged over all ranks} */
  static float averagedGradient(Communicator comm) {
    String device =
        comm.backend().deviceType() == DeviceType.CUDA ? "cuda:" + comm.device() : "cpu";
    Tensor w = Tensor.create(new float[] {W}, 1).to(new Device(device), torch.ScalarType.Float);
    w.set_requires_grad(true);
    try (DataParallel model = new DataParallel(comm, Map.of("w", w), ReducerConfig.defaults())) {
      Tensor loss = w.mul(new Scalar(FACTOR)).mul(new Scalar((float) comm.rank())).sum();
      loss.backward();
      model.finish();
      return w.grad().item_float();
    }
  }
}
