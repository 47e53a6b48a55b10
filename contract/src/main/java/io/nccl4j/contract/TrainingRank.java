package io.nccl4j.contract;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.training.GradientReducer;
import io.nccl4j.training.Parameter;
import io.nccl4j.training.Reducer;
import io.nccl4j.training.ReducerConfig;
import io.nccl4j.training.Shard;
import io.nccl4j.training.ShardedReducer;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * One rank's copy of a model and the loop that trains it. The test computes on the host, and copies
 * to the device, what a framework would compute on the device.
 */
final class TrainingRank implements AutoCloseable {
  /**
   * The settings of a training run.
   *
   * @param parts the number of parts that each rank's samples are divided into, whose gradients
   *     accumulate
   * @param skipsUnused whether parameters that the samples do not use stay unmarked
   */
  record TrainingPlan(boolean sharded, List<DataType> types, int parts, boolean skipsUnused) {}

  private final Rank rank;
  private final TrainingPlan plan;
  private final TinyModel model;
  private final List<Parameter> parameters = new ArrayList<>();
  private final Reducer reducer;

  /** Initializes random parameters on each rank; the reducer replaces them by those of rank 0. */
  TrainingRank(Rank rank, TrainingPlan plan) {
    this.rank = rank;
    this.plan = plan;
    this.model = TinyModel.random("rank " + rank.rank(), plan.types());
    for (int p = 0; p < TinyModel.parameters(); p++) {
      DataType type = model.type(p);
      Buffer value = rank.allocate(type, TinyModel.count(p));
      upload(value, model.values(p));
      Buffer gradient = rank.allocate(type, TinyModel.count(p));
      gradient.fill((byte) 0, rank.stream());
      String name = TinyModel.name(p);
      parameters.add(p % 2 == 0 ? Parameter.of(name, value, gradient) : Parameter.of(name, value));
    }
    // Small enough for several buckets.
    ReducerConfig config =
        ReducerConfig.defaults()
            .withFirstBucketBytes(8)
            .withBucketBytes(48)
            .withFindUnusedParameters(plan.skipsUnused());
    this.reducer =
        plan.sharded()
            ? ShardedReducer.open(rank.comm(), parameters, config, rank.stream())
            : GradientReducer.open(rank.comm(), parameters, config, rank.stream());
    downloadParameters();
  }

  /** Trains on this rank's part of a batch; returns the loss on the whole batch after each step. */
  double[] train(List<TinyModel.Sample> batch, int steps) {
    List<TinyModel.Sample> mine = TinyModel.part(batch, rank.rank(), rank.size());
    double[] losses = new double[steps];
    for (int step = 0; step < steps; step++) {
      for (int part = 0; part < plan.parts() - 1; part++) {
        List<TinyModel.Sample> samples = TinyModel.part(mine, part, plan.parts());
        reducer.noSync(() -> backward(samples));
      }
      backward(TinyModel.part(mine, plan.parts() - 1, plan.parts()));
      reducer.finish(rank.stream());
      step();
      downloadParameters();
      losses[step] = model.loss(batch);
    }
    return losses;
  }

  private void backward(List<TinyModel.Sample> samples) {
    List<double[]> gradients = model.gradients(samples);
    for (int p = parameters.size() - 1; p >= 0; p--) {
      if (TinyModel.uses(samples, p) || !plan.skipsUnused()) {
        Buffer gradient = reducer.gradient(parameters.get(p));
        double[] sum = download(gradient);
        for (int i = 0; i < sum.length; i++) {
          sum[i] += gradients.get(p)[i] / plan.parts();
        }
        upload(gradient, sum);
        reducer.markReady(parameters.get(p), rank.stream());
      }
    }
  }

  private void step() {
    if (reducer instanceof ShardedReducer sharded) {
      for (Shard shard : sharded.shards()) {
        step(shard.values(), shard.gradients());
      }
      sharded.gatherParameters(rank.stream());
    } else {
      parameters.forEach(parameter -> step(parameter.value(), reducer.gradient(parameter)));
    }
    for (Parameter parameter : parameters) {
      // A sharded reducer has already zeroed the gradients in its buckets.
      if (!plan.sharded() || parameter.gradient().isPresent()) {
        reducer.gradient(parameter).fill((byte) 0, rank.stream());
      }
    }
  }

  private void step(Buffer value, Buffer gradient) {
    double[] values = download(value);
    double[] gradients = download(gradient);
    for (int i = 0; i < values.length; i++) {
      values[i] = TinyModel.stepped(value.type(), values[i], gradients[i]);
    }
    upload(value, values);
  }

  private void downloadParameters() {
    for (int p = 0; p < parameters.size(); p++) {
      double[] values = download(parameters.get(p).value());
      System.arraycopy(values, 0, model.values(p), 0, values.length);
    }
  }

  private double[] download(Buffer buffer) {
    MemorySegment contents = rank.download(buffer);
    double[] values = new double[Math.toIntExact(buffer.count())];
    for (int i = 0; i < values.length; i++) {
      values[i] = buffer.type().get(contents, i);
    }
    return values;
  }

  private void upload(Buffer buffer, double[] values) {
    MemorySegment contents = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    for (int i = 0; i < values.length; i++) {
      buffer.type().set(contents, i, values[i]);
    }
    buffer.copyFromAsync(contents, rank.stream());
  }

  @Override
  public void close() {
    rank.stream().synchronize();
    reducer.close();
  }
}
