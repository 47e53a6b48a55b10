package io.nccl4j.examples.spark;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.Serializable;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.BarrierTaskInfo;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** One task of a barrier stage: a rank with its backend and its communicator. */
final class RankTask<T, R> extends AbstractFunction1<Iterator<T>, Iterator<Tuple2<Integer, R>>>
    implements Serializable {
  private static final long serialVersionUID = 1;

  private final BackendChoice choice;
  private final Duration timeout;
  private final RankProgram<T, R> program;

  RankTask(BackendChoice choice, Duration timeout, RankProgram<T, R> program) {
    this.choice = choice;
    this.timeout = timeout;
    this.program = program;
  }

  @Override
  public Iterator<Tuple2<Integer, R>> apply(Iterator<T> data) {
    BarrierTaskContext context = BarrierTaskContext.get();
    OptionalInt gpu = gpu(context);
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(timeout);
    try (TaskEnd end = TaskEnd.of(context);
        Backend backend = gpu.isPresent() ? Backend.nccl() : Backend.reference(1);
        Rendezvous rendezvous = rendezvous(context);
        Communicator communicator =
            rendezvous.newCommunicator(
                backend, config.withDevice(GpuAddress.device(gpu, backend.devices().size())))) {
      end.aborts(communicator);
      R result = run(communicator, data, context);
      return CollectionConverters.asScala(
          List.of(new Tuple2<>(context.partitionId(), result)).iterator());
    }
  }

  /** Returns the index of the GPU to use, or empty for the reference backend. */
  private OptionalInt gpu(BarrierTaskContext context) {
    if (choice == BackendChoice.REFERENCE) {
      return OptionalInt.empty();
    }
    OptionalInt gpu = GpuAddress.of(context.resourcesJMap());
    if (gpu.isEmpty() && choice == BackendChoice.NCCL) {
      throw new IllegalStateException(
          "Spark has assigned no GPU to the task of rank "
              + context.partitionId()
              + ", but the backend is NCCL: set spark.task.resource.gpu.amount=1 and"
              + " spark.executor.resource.gpu.amount");
    }
    return gpu;
  }

  private static Rendezvous rendezvous(BarrierTaskContext context) {
    BarrierTaskInfo[] tasks = context.getTaskInfos();
    return Rendezvous.allGather(
        RankInfo.of(context.partitionId(), tasks.length),
        text -> Arrays.asList(context.allGather(text)));
  }

  private R run(Communicator communicator, Iterator<T> data, BarrierTaskContext context) {
    try {
      return program.run(communicator, CollectionConverters.asJava(data), context);
    } catch (Throwable e) {
      // Not close(), which would wait for the other ranks.
      communicator.abort();
      throw unchecked(e);
    }
  }

  /** Rethrows a checked exception undeclared, as Scala code would. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException unchecked(Throwable e) throws E {
    throw (E) e;
  }
}
