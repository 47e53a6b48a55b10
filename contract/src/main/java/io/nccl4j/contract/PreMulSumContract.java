package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The operator that multiplies each rank's data by that rank's scalar before summing. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class PreMulSumContract {
  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 5);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void eachRankAppliesItsOwnScalar(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            for (DataType type : DataType.values()) {
              if (underTest().scales(type, n)) {
                try (ReduceOp.PreMulSum op = rank.comm().newPreMulSum(type, scalar(rank.rank()))) {
                  assertEquals(type, op.type());
                  checkSums(rank, type, op);
                }
              }
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void scalarCanBeReadFromBuffer(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            for (DataType type : DataType.values()) {
              if (underTest().scales(type, n)) {
                MemorySegment one = MemorySegment.ofArray(new byte[type.bytes()]);
                type.set(one, 0, scalar(rank.rank()));
                Buffer scalar = rank.upload(type, one);
                try (ReduceOp.PreMulSum op = rank.comm().newPreMulSum(scalar)) {
                  checkSums(rank, type, op);
                }
              }
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void scalarInBufferIsReadWhenReductionRuns(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer scalar = rank.ints(1);
            Buffer value = rank.ints(1);
            try (ReduceOp.PreMulSum op = rank.comm().newPreMulSum(scalar)) {
              scalar.copyFromAsync(MemorySegment.ofArray(new int[] {10}), rank.stream());
              rank.comm().allReduce(value, value, op, rank.stream());
              assertEquals(10 * n, rank.downloadInts(value)[0]);
            }
          });
    }
  }

  @Test
  void closingOperatorDoesNotAffectEnqueuedReductions() {
    int n = Math.min(3, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            for (int i = 0; i < 5; i++) {
              value.copyFromAsync(MemorySegment.ofArray(new int[] {1}), rank.stream());
              ReduceOp.PreMulSum op = rank.comm().newPreMulSum(DataType.INT32, i);
              rank.comm().allReduce(value, value, op, rank.stream());
              op.close();
              op.close();
              assertEquals(i * n, rank.downloadInts(value)[0]);
            }
          });
    }
  }

  @Test
  void twoOperatorsWorkConcurrently() {
    int n = Math.min(2, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (ReduceOp.PreMulSum two = rank.comm().newPreMulSum(DataType.INT32, 2);
                ReduceOp.PreMulSum three = rank.comm().newPreMulSum(DataType.INT32, 3)) {
              Buffer a = rank.ints(1);
              Buffer b = rank.ints(1);
              rank.comm().allReduce(a, a, two, rank.stream());
              rank.comm().allReduce(b, b, three, rank.stream());
              assertEquals(2 * n, rank.downloadInts(a)[0]);
              assertEquals(3 * n, rank.downloadInts(b)[0]);
            }
          });
    }
  }

  @Test
  void foreignMistypedOrClosedOperatorIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer ints = rank.ints(1);
      Buffer floats = rank.upload(DataType.FLOAT32, MemorySegment.ofArray(new float[1]));
      ReduceOp.PreMulSum op = rank.comm().newPreMulSum(DataType.FLOAT32, 2);
      Throwable type =
          assertThrows(
              IllegalArgumentException.class,
              () -> rank.comm().allReduce(ints, ints, op, rank.stream()));
      assertEquals("op was created for FLOAT32; it cannot reduce INT32", type.getMessage());
      try (Communicator other = rank.comm().split(0, 0)) {
        Throwable foreign =
            assertThrows(
                IllegalArgumentException.class,
                () -> other.allReduce(floats, floats, op, rank.stream()));
        assertTrue(foreign.getMessage().startsWith("op was created by"), foreign::toString);
      }
      op.close();
      Throwable closed =
          assertThrows(
              IllegalStateException.class,
              () -> rank.comm().allReduce(floats, floats, op, rank.stream()));
      assertTrue(closed.getMessage().startsWith("op is closed"), closed::toString);
    }
  }

  /** A factor that a type cannot hold, with what the type holds. */
  record Unrepresentable(DataType type, double factor, String rule) {
    @Override
    public String toString() {
      return type + " times " + factor;
    }
  }

  static List<Unrepresentable> unrepresentable() {
    String int8 = "INT8 holds whole numbers from -128 to 127";
    String uint8 = "UINT8 holds whole numbers from 0 to 255";
    String int32 = "INT32 holds whole numbers from -2147483648 to 2147483647";
    String uint32 = "UINT32 holds whole numbers from 0 to 4294967295";
    String int64 = "INT64 holds whole numbers from -9223372036854775808 to 9223372036854775807";
    String uint64 = "UINT64 holds whole numbers from 0 to 18446744073709551615";
    String float16 = "FLOAT16 holds NaN, infinities and numbers from -65504.0 to 65504.0";
    String float8e4m3 = "FLOAT8E4M3 holds NaN and numbers from -448.0 to 448.0";
    String float8e5m2 = "FLOAT8E5M2 holds NaN, infinities and numbers from -57344.0 to 57344.0";
    return List.of(
        new Unrepresentable(DataType.INT8, 300, int8),
        new Unrepresentable(DataType.INT8, -129, int8),
        new Unrepresentable(DataType.UINT8, -1, uint8),
        new Unrepresentable(DataType.UINT8, 256, uint8),
        new Unrepresentable(DataType.INT32, 0.5, int32),
        new Unrepresentable(DataType.INT32, Double.NaN, int32),
        new Unrepresentable(DataType.INT32, 0x1p31, int32),
        new Unrepresentable(DataType.UINT32, -0.5, uint32),
        new Unrepresentable(DataType.UINT32, 0x1p32, uint32),
        new Unrepresentable(DataType.INT64, Double.POSITIVE_INFINITY, int64),
        new Unrepresentable(DataType.INT64, 0x1p63, int64),
        new Unrepresentable(DataType.UINT64, 1e20, uint64),
        new Unrepresentable(DataType.UINT64, -1, uint64),
        new Unrepresentable(DataType.FLOAT16, 1e6, float16),
        new Unrepresentable(
            DataType.FLOAT16, 1e-9, "FLOAT16 rounds it to 0, which would discard the data"),
        new Unrepresentable(
            DataType.FLOAT32, -1e-60, "FLOAT32 rounds it to 0, which would discard the data"),
        new Unrepresentable(DataType.FLOAT8E4M3, 449, float8e4m3),
        new Unrepresentable(DataType.FLOAT8E4M3, Double.NEGATIVE_INFINITY, float8e4m3),
        new Unrepresentable(DataType.FLOAT8E5M2, 1e5, float8e5m2));
  }

  @Test
  void factorThatTypeCannotHoldIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Communicator comm = ranks.rank(0).comm();
      assertAll(
          unrepresentable().stream()
              .map(
                  each ->
                      () ->
                          assertEquals(
                              "scalar is " + each.factor() + "; " + each.rule(),
                              assertThrows(
                                      IllegalArgumentException.class,
                                      () -> comm.newPreMulSum(each.type(), each.factor()).close(),
                                      each::toString)
                                  .getMessage())));
    }
  }

  @Test
  void scalarOfSeveralElementsIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Throwable thrown =
          assertThrows(
              IllegalArgumentException.class, () -> rank.comm().newPreMulSum(rank.ints(1, 2)));
      assertEquals("scalar has count 2; it must be 1", thrown.getMessage());
    }
  }

  @Test
  void operatorCanBeClosedAfterItsCommunicator() {
    ReduceOp.PreMulSum op;
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      op = ranks.rank(0).comm().newPreMulSum(DataType.FLOAT32, 1);
    }
    op.close();
  }

  private static int scalar(int rank) {
    return rank % 2 + 1;
  }

  private static void checkSums(Rank rank, DataType type, ReduceOp op) {
    int n = rank.size();
    double expected = 0;
    for (int r = 0; r < n; r++) {
      expected += scalar(r);
    }
    MemorySegment ones = MemorySegment.ofArray(new byte[5 * type.bytes()]);
    for (int i = 0; i < 5; i++) {
      type.set(ones, i, 1);
    }
    Buffer value = rank.upload(type, ones);
    Buffer result = rank.allocate(type, 5);
    rank.comm().allReduce(value, result, op, rank.stream());
    rank.comm().reduce(value, value, op, n - 1, rank.stream());
    double[] values = {expected, expected, expected, expected, expected};
    Expected sums = Expected.near(type, values, new double[5]);
    sums.check(rank.download(result), () -> "allReduce of " + type + " on " + rank);
    if (rank.rank() == n - 1) {
      sums.check(rank.download(value), () -> "reduce of " + type + " on " + rank);
    }
  }
}
