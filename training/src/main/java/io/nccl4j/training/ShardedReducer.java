package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * Averages for each rank its own part of the gradients, lets the rank update that part of the
 * parameters alone, and then gathers the parameters. As in ZeRO, the optimiser state is divided
 * among the ranks; each rank keeps all parameters and gradients.
 *
 * {@snippet :
 * try (ShardedReducer reducer =
 *     ShardedReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
 *   for (Batch batch : batches) {
 *     backward(batch, parameter -> reducer.markReady(parameter, stream)); // each as it is computed
 *     reducer.finish(stream);
 *     for (Shard shard : reducer.shards()) {
 *       optimiserStep(shard.values(), shard.gradients(), stream); // 1 / size of the work
 *     }
 *     reducer.gatherParameters(stream); // every rank has all parameters again
 *   }
 *   stream.synchronize();
 * }
 * }
 *
 * <p>A step ends with {@link #gatherParameters}, which reuses the buckets: gradients stored in them
 * are zero afterwards, as is {@link Shard#gradients}. Gradients that are copied into buckets keep
 * the values that backward computed.
 *
 * <p>The shards are copied from rank 0's parameters when the reducer is created. After changing
 * parameters by other means, such as loading a checkpoint, create a new reducer.
 */
@NullMarked
public final class ShardedReducer extends Reducer {
  private final List<Shard> shards = new ArrayList<>();
  private boolean gathered = true;

  private ShardedReducer(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    Objects.requireNonNull(communicator, "communicator");
    super(communicator, parameters, config, communicator.size(), stream);
  }

  /**
   * Creates a reducer, broadcasts rank 0's parameters to all ranks, and copies this rank's part of
   * them. Every rank calls this method and waits for the others, for at most the communicator's
   * timeout plus 5 seconds.
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
  public static ShardedReducer open(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    ShardedReducer reducer = new ShardedReducer(communicator, parameters, config, stream);
    reducer.start(stream);
    return reducer;
  }

  @Override
  void prepare() {
    int size = communicator().size();
    for (BucketBuffer bucket : bucketBuffers()) {
      long count = bucket.memory().count() / size;
      long offset = count * communicator().rank();
      Buffer values =
          resources().add(communicator().newBuffer(bucket.bucket().type(), count), Buffer::close);
      Shard shard =
          new Shard(bucket.bucket(), offset, values, bucket.memory().slice(offset, count));
      bucket.gatherValues(stream());
      values.copyFromAsync(shard.gradients(), stream());
      bucket.clear(stream());
      shards.add(shard);
    }
  }

  /** {@return this rank's part of each bucket, in the order of the buckets} */
  public List<Shard> shards() {
    return Collections.unmodifiableList(shards);
  }

  @Override
  void reduce(BucketBuffer bucket) {
    communicator()
        .reduceScatter(
            bucket.memory(),
            shards.get(bucket.bucket().index()).gradients(),
            ReduceOp.AVG,
            stream());
  }

  @Override
  void stepFinished() {
    gathered = false;
  }

  @Override
  void checkParametersGathered() {
    if (!gathered) {
      throw new IllegalStateException(
          "the parameters of the last step are not gathered; call gatherParameters after the"
              + " optimiser's step, before the next backward");
    }
  }

  /**
   * Distributes all shards of the parameters to every rank, once a stream has completed the work
   * enqueued on it so far; later work on that stream waits for it. The host does not wait.
   *
   * @param stream the stream that updates {@link Shard#values}, on this rank's device; its later
   *     work sees all parameters
   * @throws IllegalArgumentException if the stream is on another device
   * @throws IllegalStateException if no {@link #finish} precedes this call in the step, the reducer
   *     or the stream is closed, another thread is using the reducer, or this thread has a group
   *     open
   * @throws io.nccl4j.NcclException if the library failed
   * @throws io.nccl4j.CudaException if a CUDA call fails
   */
  public void gatherParameters(Stream stream) {
    enter("gatherParameters");
    try {
      checkUsable(stream, "gatherParameters");
      if (gathered) {
        throw new IllegalStateException(
            "gatherParameters must follow finish, once in each step; there are no new parameters to"
                + " gather");
      }
      gatherShards(stream);
      gathered = true;
    } finally {
      leave();
    }
  }

  private void gatherShards(Stream updater) {
    try {
      follow(updater);
      for (int i = 0; i < shards.size(); i++) {
        BucketBuffer bucket = bucketBuffers()[i];
        communicator().allGather(shards.get(i).values(), bucket.memory(), stream());
        bucket.scatterValues(stream());
        bucket.clear(stream());
      }
      handOver(updater);
    } catch (RuntimeException | Error cause) {
      fail(cause);
      throw cause;
    }
  }
}
