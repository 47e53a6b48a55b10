package io.nccl4j.training;

import static io.nccl4j.DataType.BFLOAT16;
import static io.nccl4j.DataType.FLOAT32;
import static io.nccl4j.DataType.FLOAT64;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

class BucketPlanTest {
  private static final ReducerConfig SMALL =
      ReducerConfig.defaults().withFirstBucketBytes(16).withBucketBytes(64);

  private final List<Parameter> parameters = new ArrayList<>();

  /** Registers another parameter, named "p0", "p1" and so on. */
  private BucketPlanTest add(DataType type, long count) {
    // The address is never accessed.
    parameters.add(
        Parameter.of("p" + parameters.size(), Buffer.ofDeviceAddress(1L << 20, type, count, 0)));
    return this;
  }

  private List<String> buckets(ReducerConfig config, int shards) {
    return BucketPlan.divide(parameters, config, shards).stream().map(Bucket::toString).toList();
  }

  @Test
  void lastParametersAreFirstAndFirstBucketIsSmaller() {
    for (int i = 0; i < 7; i++) {
      add(FLOAT32, 8);
    }
    assertEquals(
        List.of(
            "bucket 0, FLOAT32 x 8: p6",
            "bucket 1, FLOAT32 x 16: p5, p4",
            "bucket 2, FLOAT32 x 16: p3, p2",
            "bucket 3, FLOAT32 x 16: p1, p0"),
        buckets(SMALL, 1));
  }

  @Test
  void bucketIsFullOnlyAtItsByteLimit() {
    add(FLOAT32, 1000).add(FLOAT32, 4).add(FLOAT32, 8).add(FLOAT32, 4);
    assertEquals(
        List.of("bucket 0, FLOAT32 x 4: p3", "bucket 1, FLOAT32 x 1012: p2, p1, p0"),
        buckets(SMALL, 1));
  }

  @Test
  void oversizedGradientGetsAnOversizedBucket() {
    add(FLOAT32, 8).add(FLOAT32, 1000).add(FLOAT32, 1000);
    assertEquals(
        List.of(
            "bucket 0, FLOAT32 x 1000: p2",
            "bucket 1, FLOAT32 x 1000: p1",
            "bucket 2, FLOAT32 x 8: p0"),
        buckets(SMALL, 1));
  }

  @Test
  void defaultBucketsAre1And25Mebibytes() {
    for (int i = 0; i < 60; i++) {
      add(FLOAT32, 1 << 18);
    }
    List<Bucket> buckets = BucketPlan.divide(parameters, ReducerConfig.defaults(), 1);
    assertEquals(
        List.of(1L << 20, 25L << 20, 25L << 20, 9L << 20),
        buckets.stream().map(Bucket::byteSize).toList());
  }

  @Test
  void typesHaveSeparateBucketsInCompletionOrder() {
    add(FLOAT32, 4).add(BFLOAT16, 8).add(FLOAT32, 16).add(BFLOAT16, 8).add(FLOAT32, 4);
    assertEquals(
        List.of(
            "bucket 0, FLOAT32 x 4: p4",
            "bucket 1, BFLOAT16 x 8: p3",
            "bucket 2, FLOAT32 x 16: p2",
            "bucket 3, BFLOAT16 x 8: p1",
            "bucket 4, FLOAT32 x 4: p0"),
        buckets(SMALL, 1));
    assertEquals(
        List.of("bucket 0, BFLOAT16 x 16: p3, p1", "bucket 1, FLOAT32 x 24: p4, p2, p0"),
        buckets(ReducerConfig.defaults(), 1));
  }

  @Test
  void gradientsAreAlignedTo16Bytes() {
    add(FLOAT32, 3).add(FLOAT32, 5).add(FLOAT32, 1);
    add(BFLOAT16, 3).add(BFLOAT16, 9).add(FLOAT64, 1).add(FLOAT64, 1);
    List<Bucket> buckets = BucketPlan.divide(parameters, ReducerConfig.defaults(), 1);
    assertEquals(
        List.of(List.of(0L, 2L), List.of(0L, 16L), List.of(0L, 4L, 12L)),
        buckets.stream()
            .map(bucket -> bucket.slots().stream().map(Bucket.Slot::offset).toList())
            .toList());
    assertEquals(List.of(4L, 24L, 16L), buckets.stream().map(Bucket::count).toList());
  }

  @Test
  void emptyGradientsTakeNoSpace() {
    add(FLOAT32, 0).add(FLOAT32, 4).add(FLOAT32, 0);
    assertEquals(
        List.of("bucket 0, FLOAT32 x 4: p2, p1", "bucket 1, FLOAT32 x 0: p0"), buckets(SMALL, 1));
  }

  @Test
  void shardsHaveEqualSizesAlignedTo16Bytes() {
    add(FLOAT32, 5).add(BFLOAT16, 3);
    assertEquals(
        List.of("bucket 0, BFLOAT16 x 24: p1", "bucket 1, FLOAT32 x 12: p0"),
        buckets(ReducerConfig.defaults(), 3));
  }

  @Test
  void gradientsAreInOneBucketEachAndDoNotOverlap() {
    long seed = Long.getLong("test.seed", System.nanoTime() & 0xFFFF_FFFFL);
    SplittableRandom random = new SplittableRandom(seed);
    List<DataType> types = List.of(FLOAT32, BFLOAT16, FLOAT64);
    for (int round = 0; round < 200; round++) {
      parameters.clear();
      int count = random.nextInt(1, 30);
      for (int i = 0; i < count; i++) {
        add(types.get(random.nextInt(types.size())), random.nextInt(0, 50));
      }
      int shards = random.nextInt(1, 9);
      List<Bucket> buckets = BucketPlan.divide(parameters, SMALL, shards);
      List<Parameter> seen = new ArrayList<>();
      for (Bucket bucket : buckets) {
        checkBucket(bucket, shards, "-Dtest.seed=" + seed + ", round " + round);
        seen.addAll(bucket.parameters());
      }
      assertEquals(parameters.size(), seen.size());
      assertTrue(seen.containsAll(parameters), "-Dtest.seed=" + seed);
    }
  }

  private void checkBucket(Bucket bucket, int shards, String seed) {
    long end = 0;
    List<Integer> positions = new ArrayList<>();
    for (Bucket.Slot slot : bucket.slots()) {
      assertTrue(slot.offset() >= end, seed);
      assertEquals(bucket.type(), slot.parameter().value().type(), seed);
      end = slot.offset() + slot.parameter().value().count();
      positions.add(-parameters.indexOf(slot.parameter()));
    }
    assertTrue(end <= bucket.count(), seed);
    assertEquals(0, bucket.count() % shards, seed);
    assertEquals(positions.stream().sorted().toList(), positions, "last registered first, " + seed);
    assertTrue(Collections.frequency(positions, positions.getFirst()) == 1, seed);
  }
}
