package io.nccl4j.training;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Runs the training loop shown in docs/guides/training.md. */
class TrainWithItTest {
  /** Samples x of y = 2x + 1, which the model w * x + b learns. */
  private static final float[] SAMPLES = {1, -1, 0.5f, 2, -2, 1.5f, -0.5f, 1};

  private static final int EPOCHS = 100;

  /** The model; arithmetic on the host stands for a framework's kernels. */
  private static final class Model {
    private final Buffer weight;
    private final Buffer bias;
    private final Buffer weightGradient;

    Model(Communicator comm) {
      this.weight = comm.newBuffer(DataType.FLOAT32, 1);
      this.bias = comm.newBuffer(DataType.FLOAT32, 1);
      this.weightGradient = comm.newBuffer(DataType.FLOAT32, 1);
    }

    void close() {
      List.of(weight, bias, weightGradient).forEach(Buffer::close);
    }
  }

  private static float get(Buffer buffer, Stream stream) {
    float[] value = new float[1];
    buffer.copyTo(MemorySegment.ofArray(value), stream);
    return value[0];
  }

  private static void set(Buffer buffer, float value, Stream stream) {
    buffer.copyFromAsync(MemorySegment.ofArray(new float[] {value}), stream);
  }

  /** Computes both gradients of (w * x + b - y)^2, the bias's first. */
  private static void backward(float x, Model model, Buffer biasGradient, Stream stream) {
    float error = get(model.weight, stream) * x + get(model.bias, stream) - (2 * x + 1);
    set(biasGradient, 2 * error, stream);
    set(model.weightGradient, 2 * error * x, stream);
  }

  private static void step(Buffer value, Buffer gradient, Stream stream) {
    set(value, get(value, stream) - 0.1f * get(gradient, stream), stream);
  }

  private static void train(Communicator comm, Stream stream, Model model, float[] batches) {
    Buffer weight = model.weight;
    Buffer bias = model.bias;
    Buffer weightGradient = model.weightGradient;
    Parameter w = Parameter.of("weight", weight, weightGradient); // copied into a bucket and back
    Parameter b = Parameter.of("bias", bias); // its gradient lives in a bucket
    try (GradientReducer reducer =
        GradientReducer.open(comm, List.of(w, b), ReducerConfig.defaults(), stream)) {
      for (float batch : batches) {
        backward(batch, model, reducer.gradient(b), stream);
        reducer.markReady(b, stream); // from a hook, say, as soon as it is computed
        reducer.markReady(w, stream);
        reducer.finish(stream); // the stream waits for the averages, the host does not
        step(weight, weightGradient, stream);
        step(bias, reducer.gradient(b), stream);
      }
      stream.synchronize();
    }
  }

  @Test
  void everyRankLearnsTheLine() throws Exception {
    int size = 2;
    List<FutureTask<List<Float>>> ranks = new ArrayList<>();
    try (Backend backend = Backend.reference(size)) {
      UniqueId id = backend.newUniqueId();
      for (int rank = 0; rank < size; rank++) {
        int self = rank;
        ranks.add(new FutureTask<>(() -> learned(backend, id, size, self)));
        Thread.ofPlatform().daemon().name("rank-" + rank).start(ranks.get(rank));
      }
      for (FutureTask<List<Float>> rank : ranks) {
        List<Float> line = rank.get(60, TimeUnit.SECONDS);
        assertEquals(2, line.get(0), 1e-4);
        assertEquals(1, line.get(1), 1e-4);
      }
    }
  }

  private static List<Float> learned(Backend backend, UniqueId id, int size, int rank) {
    float[] own = new float[SAMPLES.length * EPOCHS / size];
    for (int i = 0; i < own.length; i++) {
      own[i] = SAMPLES[(i * size + rank) % SAMPLES.length];
    }
    try (Communicator comm =
            backend.newCommunicator(id, size, rank, CommunicatorConfig.defaults());
        Stream stream = comm.newStream()) {
      Model model = new Model(comm);
      // All ranks start from rank 0's values.
      set(model.weight, 0.5f - 100 * rank, stream);
      set(model.bias, -0.5f + 100 * rank, stream);
      train(comm, stream, model, own);
      List<Float> line = List.of(get(model.weight, stream), get(model.bias, stream));
      model.close();
      return line;
    }
  }

  @Test
  void loopFailsWhenTheOtherRankAborts() throws Exception {
    List<FutureTask<Void>> ranks = new ArrayList<>();
    try (Backend backend = Backend.reference(2)) {
      UniqueId id = backend.newUniqueId();
      for (int rank = 0; rank < 2; rank++) {
        int self = rank;
        ranks.add(new FutureTask<>(() -> trainAndAbort(backend, id, self, 3 - 2 * self), null));
        Thread.ofPlatform().daemon().name("rank-" + rank).start(ranks.get(rank));
      }
      ranks.get(1).get(60, TimeUnit.SECONDS);
      ExecutionException left =
          assertThrows(ExecutionException.class, () -> ranks.get(0).get(60, TimeUnit.SECONDS));
      assertInstanceOf(NcclRemoteException.class, left.getCause());
    }
  }

  private static void trainAndAbort(Backend backend, UniqueId id, int rank, int batches) {
    Communicator comm = backend.newCommunicator(id, 2, rank, CommunicatorConfig.defaults());
    Stream stream = comm.newStream();
    Model model = new Model(comm);
    set(model.weight, 0, stream);
    set(model.bias, 0, stream);
    try {
      train(comm, stream, model, Arrays.copyOf(SAMPLES, batches));
    } finally {
      comm.abort();
      stream.close();
      model.close();
    }
  }
}
