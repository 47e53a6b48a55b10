package io.nccl4j.training;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.management.ManagementFactory;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/**
 * In the steady state a step of a reducer allocates no more Java heap than the same calls of
 * streams, buffers and the communicator without a reducer.
 */
class ReducerSteadyStateTest {
  private static final int STEPS = 2000;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private final Backend backend = Backend.reference(1);
  private final Communicator comm =
      backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
  private final Stream stream = comm.newStream();
  private final Stream second = comm.newStream();
  private final Event event = comm.newEvent();
  private final Event handOver = comm.newEvent();
  private final Buffer bucket = comm.newBuffer(DataType.FLOAT32, 8);
  private final Buffer slot = bucket.slice(4, 4);
  private final Buffer value = comm.newBuffer(DataType.FLOAT32, 4);
  private final Buffer other = comm.newBuffer(DataType.FLOAT32, 4);
  private final Buffer gradient = comm.newBuffer(DataType.FLOAT32, 4);
  private final Parameter copied = Parameter.of("copied", value, gradient);
  private final Parameter inBucket = Parameter.of("in bucket", other);
  private final List<Parameter> parameters = List.of(copied, inBucket);

  @AfterEach
  void close() {
    stream.synchronize();
    second.synchronize();
    List.of(bucket, value, other, gradient).forEach(Buffer::close);
    event.close();
    handOver.close();
    second.close();
    stream.close();
    comm.close();
    backend.close();
  }

  @Test
  void gradientReducerStepAllocatesOnlyWhatItsCallsDo() {
    try (GradientReducer reducer =
        GradientReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
      assertAllocatesNoMore(() -> reduce(reducer), this::reduceByHand);
    }
  }

  @Test
  void shardedReducerStepAllocatesOnlyWhatItsCallsDo() {
    try (ShardedReducer reducer =
        ShardedReducer.open(comm, parameters, ReducerConfig.defaults(), stream)) {
      Buffer shard = reducer.shards().getFirst().values();
      assertAllocatesNoMore(
          () -> {
            reduce(reducer);
            reducer.gatherParameters(stream);
          },
          () -> shardByHand(shard));
    }
  }

  private void reduce(Reducer reducer) {
    reducer.markReady(inBucket, stream);
    reducer.markReady(copied, stream);
    reducer.finish(stream);
  }

  private void pass(Stream from, Event event, Stream to) {
    from.record(event);
    to.waitFor(event);
  }

  private void reduceByHand() {
    pass(stream, event, second);
    slot.copyFromAsync(gradient, second);
    comm.allReduce(bucket, bucket, ReduceOp.AVG, second);
    gradient.copyFromAsync(slot, second);
    pass(second, handOver, stream);
  }

  private void shardByHand(Buffer shard) {
    pass(stream, event, second);
    slot.copyFromAsync(gradient, second);
    comm.reduceScatter(bucket, bucket, ReduceOp.AVG, second);
    pass(second, handOver, stream);
    pass(stream, handOver, second);
    comm.allGather(shard, bucket, second);
    value.copyFromAsync(slot, second);
    value.copyFromAsync(slot, second);
    bucket.fill((byte) 0, second);
    pass(second, handOver, stream);
  }

  private void assertAllocatesNoMore(Runnable step, Runnable byHand) {
    long more = Long.MAX_VALUE;
    // Allocations by the interpreter stop after some attempts.
    for (int attempt = 0; attempt < 20 && more >= STEPS; attempt++) {
      more = allocated(step) - allocated(byHand);
    }
    long found = more;
    assertTrue(more < STEPS, () -> found + " bytes more in " + STEPS + " steps");
  }

  /** Returns the bytes that this thread allocates in {@link #STEPS} steps. */
  private long allocated(Runnable step) {
    long before = THREADS.getCurrentThreadAllocatedBytes();
    for (int i = 0; i < STEPS; i++) {
      step.run();
      if (i % 50 == 49) {
        // Keeps the queue short, as in a real program.
        stream.synchronize();
      }
    }
    stream.synchronize();
    return THREADS.getCurrentThreadAllocatedBytes() - before;
  }
}
