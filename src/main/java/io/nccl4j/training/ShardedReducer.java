package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;

/**
 * Gives each rank the average of its own part of the gradients, lets it step on that part of the
 * parameters alone, and then gathers the parameters: ZeRO's way, in which the state of the
 * optimiser is divided among the ranks, while parameters and gradients stay whole on each.
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
 * <p>A step ends with {@link #gatherParameters}, which uses the buckets once more: gradients that
 * live in them are zero afterwards, as is {@link Shard#gradients}. Gradients that are copied into
 * their buckets are left as backward made them.
 *
 * <p>The shards are made from rank 0's parameters when the reducer is. Whoever changes parameters
 * otherwise, such as by loading a checkpoint, makes a new reducer.
 */
public final class ShardedReducer extends Reducer {
  private final List<Shard> shards = new ArrayList<>();
  private boolean gathered = true;

  private ShardedReducer(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    Objects.requireNonNull(communicator, "communicator");
    super(communicator, parameters, config, communicator.size(), stream);
  }

  /**
   * Makes a reducer, gives every rank rank 0's parameters, and takes this rank's part of them.
   * Every rank calls it, and waits for the others for at most the communicator's timeout and 5
   * seconds.
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
  public static ShardedReducer open(
      Communicator communicator, List<Parameter> parameters, ReducerConfig config, Stream stream) {
    ShardedReducer reducer = new ShardedReducer(communicator, parameters, config, stream);
    reducer.start(stream);
    return reducer;
  }

  @Override
  void prepare() {
    int size = communicator().size();
    for (BucketBuffer bucket : memories()) {
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
  void checkParametersAreThere() {
    if (!gathered) {
      throw new IllegalStateException(
          "the parameters of the last step are not gathered; call gather after the optimiser's step, before the next backward");
    }
  }

  /**
   * Gives every rank all parts of the parameters, once a stream has done what it has been given so
   * far; what it is given from now on waits for that. The host does not wait.
   *
   * @param stepped the stream that changes {@link Shard#values}, and that may use the parameters
   *     next; of this rank's device
   * @throws IllegalArgumentException if the stream is of another device
   * @throws IllegalStateException if no {@link #finish} came before, the reducer or the stream is
   *     closed, another thread is using the reducer, or this thread has a group open
   * @throws io.nccl4j.NcclException if the library failed
   * @throws io.nccl4j.CudaException if the runtime refuses
   */
  public void gatherParameters(Stream stepped) {
    enter("gatherParameters");
    try {
      checkUsable(stepped, "gatherParameters");
      if (gathered) {
        throw new IllegalStateException(
            "gatherParameters comes after finish, once in each step; there are no new parameters to gather");
      }
      gatherShards(stepped);
      gathered = true;
    } finally {
      leave();
    }
  }

  private void gatherShards(Stream stepped) {
    try {
      follow(stepped);
      for (int i = 0; i < shards.size(); i++) {
        BucketBuffer bucket = memories()[i];
        communicator().allGather(shards.get(i).values(), bucket.memory(), stream());
        bucket.scatterValues(stream());
        bucket.clear(stream());
      }
      handOver(stepped);
    } catch (RuntimeException | Error cause) {
      fail(cause);
      throw cause;
    }
  }
}
