package io.nccl4j.training;

import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/**
 * Averages the gradients of all ranks while backward still runs, as PyTorch's {@code
 * DistributedDataParallel} does: every rank has all parameters, gets all averaged gradients, and
 * steps on them by itself.
 *
 * {@snippet :
 * List<Parameter> parameters =
 *     List.of(
 *         Parameter.of("layer.weight", weight, weightGradient), // copied into a bucket and back
 *         Parameter.of("layer.bias", bias)); // lives in a bucket: reducer.gradient(...)
 * try (GradientReducer reducer =
 *     GradientReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
 *   for (Batch batch : batches) {
 *     backward(batch, parameter -> reducer.markReady(parameter, stream)); // each as it is computed
 *     reducer.finish(stream); // the stream waits, the host does not
 *     optimiserStep(stream);
 *   }
 *   stream.synchronize();
 * }
 * }
 *
 * <p>A copied gradient is replaced by the average.
 */
public final class GradientReducer extends Reducer {
  private GradientReducer(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    super(communicator, parameters, config, 1, stream);
  }

  /**
   * Makes a reducer and gives every rank rank 0's parameters. Every rank calls it, and waits for
   * the others for at most the communicator's timeout and 5 seconds.
   *
   * @param communicator what the gradients are reduced with; in nobody else's use meanwhile
   * @param parameters the parameters, in the order in which forward uses them: their gradients are
   *     expected in the reverse order. The list is not kept
   * @param config how to divide and check
   * @param stream the stream that has made the parameters, and that may use them next
   * @return the reducer, for the caller to close
   * @throws IllegalArgumentException if there are no parameters, two have one name or share memory,
   *     one or the stream is of another device, one is of a float8 type that cannot be reduced
   *     here, or, on every rank, if the ranks registered different parameters or configurations
   * @throws IllegalStateException if the communicator, the stream or a parameter's buffer is
   *     closed, or this thread has a group open
   * @throws NullPointerException if an argument or a parameter is null
   * @throws io.nccl4j.NcclTimeoutException if not all ranks came in time; on the reference it names
   *     those that did not
   * @throws io.nccl4j.NcclException if the library failed
   * @throws io.nccl4j.CudaException if there is not enough memory, or the runtime refuses
   */
  public static GradientReducer open(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    GradientReducer reducer = new GradientReducer(communicator, parameters, config, stream);
    reducer.start(stream);
    return reducer;
  }

  @Override
  void reduce(BucketBuffer bucket) {
    communicator().allReduce(bucket.memory(), bucket.memory(), ReduceOp.AVG, stream());
    bucket.scatter(stream());
  }
}
