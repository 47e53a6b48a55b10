package io.nccl4j.training;

import io.nccl4j.DataType;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Assigns gradients to buckets: those of the last parameters first, since backward computes them
 * first, and each type in separate buckets. Deterministic, so all ranks get the same buckets.
 */
final class BucketPlan {
  /** The alignment preferred by vector instructions and framework kernels. */
  private static final int ALIGNMENT_BYTES = 16;

  /** A bucket that is being filled. */
  private static final class Filling {
    private final DataType type;
    private final long limit;
    private final List<Bucket.Slot> slots = new ArrayList<>();
    private long count;
    private int last;

    Filling(DataType type, long limit) {
      this.type = type;
      this.limit = limit;
    }

    void add(Parameter parameter, int position) {
      slots.add(new Bucket.Slot(parameter, count));
      count = roundedUp(count + parameter.value().count(), alignment(type));
      last = position;
    }

    boolean full() {
      return type.byteSize(count) >= limit;
    }

    Bucket toBucket(int index, int shards) {
      return new Bucket(index, type, roundedUp(count, shards * alignment(type)), slots);
    }
  }

  private BucketPlan() {}

  /**
   * Divides the gradients into buckets.
   *
   * @param shards the number of equal parts that each bucket is divided into; each part is a
   *     multiple of the alignment
   * @return the buckets in launch order: the order in which they complete if gradients become ready
   *     in reverse order of registration
   */
  static List<Bucket> divide(List<Parameter> parameters, ReducerConfig config, int shards) {
    Map<DataType, Filling> open = new EnumMap<>(DataType.class);
    List<Filling> filled = new ArrayList<>();
    for (int i = parameters.size() - 1; i >= 0; i--) {
      Parameter parameter = parameters.get(i);
      DataType type = parameter.value().type();
      Filling filling =
          open.computeIfAbsent(type, first -> new Filling(first, config.firstBucketBytes()));
      filling.add(parameter, parameters.size() - i);
      if (filling.full()) {
        filled.add(filling);
        open.put(type, new Filling(type, config.bucketBytes()));
      }
    }
    open.values().stream().filter(rest -> !rest.slots.isEmpty()).forEach(filled::add);
    filled.sort(Comparator.comparingInt(filling -> filling.last));
    return IntStream.range(0, filled.size())
        .mapToObj(index -> filled.get(index).toBucket(index, shards))
        .toList();
  }

  private static long alignment(DataType type) {
    return ALIGNMENT_BYTES / type.bytes();
  }

  private static long roundedUp(long count, long multiple) {
    return Math.multiplyExact(Math.ceilDiv(count, multiple), multiple);
  }
}
