package io.nccl4j.training;

import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;
import org.jspecify.annotations.NullMarked;

/**
 * Averages the gradients of all ranks while backward still runs, like PyTorch's {@code
 * DistributedDataParallel}: every rank has all parameters, gets all averaged gradients, and runs
 * the whole optimiser step itself.
 *
 * {@snippet :
 * List<Parameter> parameters =
 *     List.of(
 *         Parameter.of("layer.weight", weight, weightGradient), // copied into a bucket and back
 *         Parameter.of("layer.bias", bias)); // stored in a bucket: reducer.gradient(...)
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
 * <p>A copied gradient is overwritten with the average.
 */
@NullMarked
public final class GradientReducer extends Reducer {
  private GradientReducer(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    super(communicator, parameters, config, 1, stream);
  }

  /**
   * Creates a reducer and broadcasts rank 0's parameters to all ranks. Every rank calls this method
   * and waits for the others, for at most the communicator's timeout plus 5 seconds.
   *
   * @param communicator the communicator to reduce with; not used for anything else meanwhile
   * @param parameters the parameters, in the order in which forward uses them: their gradients are
   *     expected in the reverse order. The list is copied
   * @param config the bucket sizes and checks
   * @param stream the stream that has written the parameters; its later work sees rank 0's values
   * @return the reducer, for the caller to close
   * @throws IllegalArgumentException if there are no parameters, two have the same name or share
   *     memory, a parameter or the stream is on another device, a parameter has a float8 type that
   *     cannot be reduced here, or, on every rank, if the ranks registered different parameters or
   *     configurations
   * @throws IllegalStateException if the communicator, the stream or a parameter's buffer is
   *     closed, or this thread has a group open
   * @throws NullPointerException if an argument or a parameter is null
   * @throws io.nccl4j.NcclTimeoutException if not all ranks arrived in time; on the reference
   *     backend it names the missing ranks
   * @throws io.nccl4j.NcclException if the library failed
   * @throws io.nccl4j.CudaException if memory is exhausted or a CUDA call fails
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
