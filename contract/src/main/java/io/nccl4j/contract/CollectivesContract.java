package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The results of the eight collectives, element by element. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class CollectivesContract {
  private static final List<ReduceOp> OPERATORS =
      List.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG);
  private static final List<Operation> REDUCTIONS =
      List.of(Operation.ALL_REDUCE, Operation.REDUCE, Operation.REDUCE_SCATTER);
  private static final List<Operation> MOVES =
      List.of(
          Operation.BROADCAST,
          Operation.ALL_GATHER,
          Operation.ALL_TO_ALL,
          Operation.GATHER,
          Operation.SCATTER);
  private static final long[] COUNTS = {0, 1, 2, 3, 17, 64, 257};
  private static final long[] COUNTS_OF_MANY_RANKS = {0, 1, 67};

  /** One call with its inputs and the expected result of each rank. */
  private record Case(Shape shape, List<MemorySegment> inputs, List<Expected> expected) {}

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4, 5, 8, 17);
  }

  List<Integer> everyRankCount() {
    return underTest()
        .rankCounts(IntStream.concat(IntStream.rangeClosed(1, 17), IntStream.of(24, 31)).toArray());
  }

  List<Integer> fewRankCounts() {
    return underTest().rankCounts(1, 2, 3, 4, 5, 8);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  @Timeout(300)
  void reductionOfRepresentableDataIsExactForEveryType(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (DataType type : reducedTypes()) {
        runAll(ranks, reductions(n, type, this::exactCase));
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("everyRankCount")
  void everyRankCountWorks(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Case> cases = new ArrayList<>();
      for (long count : new long[] {1, 64, 1009}) {
        for (Operation operation : REDUCTIONS) {
          cases.add(
              exactCase(new Shape(operation, DataType.BFLOAT16, ReduceOp.SUM, n, count, n / 2)));
          cases.add(
              randomCase(new Shape(operation, DataType.FLOAT32, ReduceOp.AVG, n, count, n / 2)));
        }
        for (Operation operation : MOVES) {
          cases.add(movedCase(new Shape(operation, DataType.INT8, ReduceOp.SUM, n, count, n / 2)));
        }
      }
      runAll(ranks, cases);
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void reductionOfRandomDataIsWithinForwardErrorBound(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (DataType type : reducedTypes()) {
        List<Case> cases = new ArrayList<>();
        for (Operation operation : REDUCTIONS) {
          for (ReduceOp op : OPERATORS) {
            if (reduces(type, op, n)) {
              cases.add(randomCase(new Shape(operation, type, op, n, 67, n / 2)));
            }
          }
        }
        runAll(ranks, cases);
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void dataMovementIsBitExactForEveryType(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (DataType type : underTest().movedTypes()) {
        List<Case> cases = new ArrayList<>();
        for (Operation operation : MOVES) {
          for (long count : counts(n)) {
            int root = cases.size() % n;
            cases.add(movedCase(new Shape(operation, type, ReduceOp.SUM, n, count, root)));
          }
        }
        runAll(ranks, cases);
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void everyRankCanBeTheRoot(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Case> cases = new ArrayList<>();
      for (int root = 0; root < n; root++) {
        cases.add(
            exactCase(new Shape(Operation.REDUCE, DataType.FLOAT32, ReduceOp.SUM, n, 41, root)));
        for (Operation operation :
            List.of(Operation.BROADCAST, Operation.GATHER, Operation.SCATTER)) {
          cases.add(movedCase(new Shape(operation, DataType.INT32, ReduceOp.SUM, n, 41, root)));
        }
      }
      runAll(ranks, cases);
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("fewRankCounts")
  void multiChunkMessagesArriveWhole(int n) {
    long large = 1_500_007 / n;
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (Operation operation : REDUCTIONS) {
        runAll(
            ranks,
            List.of(largeSum(new Shape(operation, DataType.INT32, ReduceOp.SUM, n, large, n - 1))));
      }
      for (Operation operation : MOVES) {
        runAll(
            ranks,
            List.of(
                movedCase(new Shape(operation, DataType.INT32, ReduceOp.SUM, n, large, n - 1))));
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("fewRankCounts")
  void enqueuedOperationsRunInOrder(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer values = rank.ints(1, 2, 3);
            for (int i = 0; i < 12; i++) {
              rank.comm().allReduce(values, values, ReduceOp.SUM, rank.stream());
              rank.comm().broadcast(values, i % n, rank.stream());
            }
            int wrapped = 1;
            for (int i = 0; i < 12; i++) {
              wrapped *= n;
            }
            assertEquals(
                List.of(wrapped, 2 * wrapped, 3 * wrapped),
                Arrays.stream(rank.downloadInts(values)).boxed().toList());
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void sumIsBitIdenticalOnEveryRank(int n) {
    ProcessRank.assumeNone(n);
    List<MemorySegment> inputs = TestData.random(DataType.FLOAT32, ReduceOp.SUM, n, 4099);
    MemorySegment[] results = new MemorySegment[n];
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      Shape shape = new Shape(Operation.ALL_REDUCE, DataType.FLOAT32, ReduceOp.SUM, n, 4099, 0);
      ranks.each(rank -> results[rank.rank()] = shape.run(rank, inputs.get(rank.rank()), false));
    }
    for (int rank = 1; rank < n; rank++) {
      int r = rank;
      Expected.bytes(results[0]).check(results[rank], () -> "rank " + r + " against rank 0");
    }
  }

  @Test
  void repeatedSumIsBitIdentical() {
    int n = Math.min(5, underTest().maxRanks());
    List<MemorySegment> inputs = TestData.random(DataType.FLOAT32, ReduceOp.SUM, n, 5003);
    Shape shape = new Shape(Operation.ALL_REDUCE, DataType.FLOAT32, ReduceOp.SUM, n, 5003, 0);
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            MemorySegment first = shape.run(rank, inputs.get(rank.rank()), false);
            for (int i = 0; i < 10; i++) {
              Expected.bytes(first)
                  .check(
                      shape.run(rank, inputs.get(rank.rank()), i % 2 == 0),
                      () -> "repetition on " + rank);
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("fewRankCounts")
  void minAndMaxIgnoreNanUnlessAllAreNan(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (DataType type : reducedTypes()) {
        if (type.floating()) {
          runAll(ranks, List.of(nanCase(type, ReduceOp.MIN, n), nanCase(type, ReduceOp.MAX, n)));
        }
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("fewRankCounts")
  void sumPropagatesNanAndInfinity(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (DataType type :
          List.of(DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)) {
        runAll(
            ranks,
            List.of(
                constantCase(
                    type,
                    ReduceOp.SUM,
                    n,
                    rank ->
                        rank == 0 ? new double[] {Double.NaN, 1.0 / 0, 3} : new double[] {1, 2, 3},
                    new double[] {Double.NaN, 1.0 / 0, 3 * n})));
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("fewRankCounts")
  void float8SumSaturates(int n) {
    assumeTrue(underTest().reducesFloat8(), "the devices do not reduce float8");
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      runAll(
          ranks,
          List.of(
              constantCase(
                  DataType.FLOAT8E4M3,
                  ReduceOp.SUM,
                  n,
                  rank -> new double[] {448, -448},
                  new double[] {448, -448}),
              constantCase(
                  DataType.FLOAT8E5M2,
                  ReduceOp.SUM,
                  n,
                  rank -> new double[] {57344, -57344},
                  new double[] {57344, -57344})));
    }
  }

  @Test
  void integerAverageTruncatesTowardZero() {
    int n = Math.min(2, underTest().maxRanks());
    assumeTrue(n == 2, "needs two ranks");
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer values = rank.ints(rank.rank() == 0 ? -3 : 0, rank.rank() == 0 ? 3 : 0);
            rank.comm().allReduce(values, values, ReduceOp.AVG, rank.stream());
            assertEquals(-1, rank.downloadInts(values)[0]);
            assertEquals(1, rank.downloadInts(values)[1]);
          });
    }
  }

  @Test
  void reductionIntoSliceLeavesNeighborsUnchanged() {
    int n = Math.min(3, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer all = rank.ints(9, 1, 2, 9, 0, 0, 9);
            rank.comm().allReduce(all.slice(1, 2), all.slice(4, 2), ReduceOp.SUM, rank.stream());
            assertEquals(
                List.of(9, 1, 2, 9, n, 2 * n, 9),
                Arrays.stream(rank.downloadInts(all)).boxed().toList());
          });
    }
  }

  @Test
  void outOfPlaceOperationLeavesSendBufferUnchanged() {
    int n = Math.min(3, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer send = rank.ints(rank.rank(), 5);
            Buffer recv = rank.allocate(DataType.INT32, 2);
            rank.comm().allReduce(send, recv, ReduceOp.SUM, rank.stream());
            rank.comm().reduce(send, recv, ReduceOp.SUM, 0, rank.stream());
            assertEquals(
                List.of(rank.rank(), 5), Arrays.stream(rank.downloadInts(send)).boxed().toList());
          });
    }
  }

  private List<DataType> reducedTypes() {
    return Arrays.stream(DataType.values()).filter(underTest()::reduces).toList();
  }

  private static long[] counts(int n) {
    return n <= 4 ? COUNTS : COUNTS_OF_MANY_RANKS;
  }

  private boolean reduces(DataType type, ReduceOp op, int n) {
    return op == ReduceOp.AVG ? underTest().scales(type, n) : underTest().reduces(type);
  }

  private List<Case> reductions(int n, DataType type, Function<Shape, Case> make) {
    List<Case> cases = new ArrayList<>();
    for (Operation operation : REDUCTIONS) {
      for (ReduceOp op : OPERATORS) {
        if (op == ReduceOp.AVG && type.floating() && Integer.bitCount(n) > 1) {
          continue; // 1/n is not exact; the tests with random data cover it
        }
        if (!reduces(type, op, n)) {
          continue;
        }
        for (long count : counts(n)) {
          cases.add(make.apply(new Shape(operation, type, op, n, count, cases.size() % n)));
        }
      }
    }
    return cases;
  }

  private Case exactCase(Shape shape) {
    List<MemorySegment> inputs =
        TestData.exact(shape.type(), shape.op(), shape.ranks(), shape.sendCount());
    return reductionCase(
        shape,
        inputs,
        from -> Expected.exactly(shape.type(), shape.op(), inputs, from, shape.count()));
  }

  private Case randomCase(Shape shape) {
    List<MemorySegment> inputs =
        TestData.random(shape.type(), shape.op(), shape.ranks(), shape.sendCount());
    return reductionCase(
        shape,
        inputs,
        from -> Expected.within(shape.type(), shape.op(), inputs, from, shape.count()));
  }

  private static Case reductionCase(
      Shape shape, List<MemorySegment> inputs, Function<Long, Expected> expectedFrom) {
    List<Expected> expected = new ArrayList<>();
    for (int rank = 0; rank < shape.ranks(); rank++) {
      long from = shape.reducedFrom(rank);
      expected.add(from == 0 && rank > 0 ? expected.get(0) : expectedFrom.apply(from));
    }
    return new Case(shape, inputs, expected);
  }

  private static Case movedCase(Shape shape) {
    List<MemorySegment> inputs =
        TestData.bytes(shape.type(), shape.ranks(), shape.sendCount(), shape.operation().method());
    List<Expected> expected = new ArrayList<>();
    for (int rank = 0; rank < shape.ranks(); rank++) {
      expected.add(Expected.bytes(shape.moved(inputs, rank)));
    }
    return new Case(shape, inputs, expected);
  }

  /** Returns a sum with a closed form, which needs no oracle: rank r sends r + i. */
  private static Case largeSum(Shape shape) {
    int n = shape.ranks();
    List<MemorySegment> inputs = new ArrayList<>();
    for (int rank = 0; rank < n; rank++) {
      int[] values = new int[(int) shape.sendCount()];
      for (int i = 0; i < values.length; i++) {
        values[i] = rank + i;
      }
      inputs.add(MemorySegment.ofArray(values));
    }
    return reductionCase(
        shape,
        inputs,
        from -> {
          int[] sum = new int[(int) shape.count()];
          for (int i = 0; i < sum.length; i++) {
            sum[i] = n * (n - 1) / 2 + n * (int) (from + i);
          }
          return Expected.bytes(MemorySegment.ofArray(sum));
        });
  }

  /**
   * Returns a case in which element i is NaN on every rank r for which bit i of r + 1 is set, and
   * the last element is NaN on all ranks.
   */
  private static Case nanCase(DataType type, ReduceOp op, int n) {
    List<MemorySegment> inputs = new ArrayList<>();
    for (int rank = 0; rank < n; rank++) {
      MemorySegment input = MemorySegment.ofArray(new byte[5 * type.bytes()]);
      for (int i = 0; i < 5; i++) {
        boolean nan = i == 4 || ((rank + 1) >> i & 1) == 1;
        type.set(input, i, nan ? Double.NaN : rank - 2);
      }
      inputs.add(input);
    }
    Shape shape = new Shape(Operation.ALL_REDUCE, type, op, n, 5, 0);
    return reductionCase(
        shape, inputs, from -> Expected.exactly(type, op, inputs, from, shape.count()));
  }

  private static Case constantCase(
      DataType type, ReduceOp op, int n, Function<Integer, double[]> perRank, double[] result) {
    List<MemorySegment> inputs = new ArrayList<>();
    for (int rank = 0; rank < n; rank++) {
      inputs.add(elements(type, perRank.apply(rank)));
    }
    MemorySegment expected = elements(type, result);
    Shape shape = new Shape(Operation.ALL_REDUCE, type, op, n, result.length, 0);
    return reductionCase(
        shape, inputs, from -> Expected.exactly(type, op, List.of(expected), 0, result.length));
  }

  private static MemorySegment elements(DataType type, double[] values) {
    MemorySegment segment = MemorySegment.ofArray(new byte[values.length * type.bytes()]);
    for (int i = 0; i < values.length; i++) {
      type.set(segment, i, values[i]);
    }
    return segment;
  }

  /**
   * Runs the cases in the same order on every rank, all out of place, then all in place. Checks the
   * results after all cases of a pass are enqueued.
   */
  private static void runAll(Ranks ranks, List<Case> cases) {
    ranks.each(
        rank -> {
          runAll(rank, cases, false);
          runAll(rank, cases.stream().filter(c -> c.shape().hasInPlaceForm()).toList(), true);
        });
  }

  private static void runAll(Rank rank, List<Case> cases, boolean inPlace) {
    List<Buffer> results = new ArrayList<>();
    for (Case one : cases) {
      results.add(one.shape().start(rank, one.inputs().get(rank.rank()), inPlace));
    }
    for (int i = 0; i < cases.size(); i++) {
      Case one = cases.get(i);
      if (one.shape().receives(rank.rank())) {
        one.expected()
            .get(rank.rank())
            .check(rank.download(results.get(i)), () -> one.shape().text(rank.rank(), inPlace));
      }
    }
    rank.free();
  }
}
