package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.lang.foreign.MemorySegment;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BinaryOperator;
import java.util.function.IntToDoubleFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * The bits of all-reduces over rings and trees of all shapes, against {@link Oracle} and {@link
 * SoftArithmetic}. Only the bits of a NaN are not checked.
 */
@Tag("slow")
class PredictionTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);
  // The others compute as one of these does.
  private static final DataType[] SOME_TYPES = {
    DataType.INT32, DataType.FLOAT64, DataType.FLOAT32, DataType.FLOAT16, DataType.FLOAT8E4M3
  };

  /** An operator by name, since a pre-multiplied sum belongs to one communicator. */
  private enum Combine {
    SUM(SoftArithmetic.Op.SUM),
    PROD(SoftArithmetic.Op.PROD),
    MAX(SoftArithmetic.Op.MAX),
    MIN(SoftArithmetic.Op.MIN),
    AVG(SoftArithmetic.Op.SUM),
    MULSUM(SoftArithmetic.Op.SUM);

    private final SoftArithmetic.Op op;

    Combine(SoftArithmetic.Op op) {
      this.op = op;
    }

    void allReduce(Communicator comm, Buffer data, io.nccl4j.Stream stream) {
      switch (this) {
        case SUM -> comm.allReduce(data, data, ReduceOp.SUM, stream);
        case PROD -> comm.allReduce(data, data, ReduceOp.PROD, stream);
        case MAX -> comm.allReduce(data, data, ReduceOp.MAX, stream);
        case MIN -> comm.allReduce(data, data, ReduceOp.MIN, stream);
        case AVG -> comm.allReduce(data, data, ReduceOp.AVG, stream);
        case MULSUM -> {
          try (ReduceOp.PreMulSum scaled = comm.newPreMulSum(data.type(), scalar(comm.rank()))) {
            comm.allReduce(data, data, scaled, stream);
          }
        }
      }
    }
  }

  private static double scalar(int rank) {
    return rank % 3 + 1;
  }

  /** The inputs and expected results of one all-reduce. */
  private static final class Sample {
    private final DataType type;
    private final int ranks;
    private final List<MemorySegment> inputs = new ArrayList<>();
    private final MemorySegment expected;
    private final Combine combine;
    private final SoftArithmetic soft;

    Sample(ReferenceOptions options, int ranks, int count, DataType type, Combine combine) {
      this.type = type;
      this.ranks = ranks;
      this.combine = combine;
      this.soft = new SoftArithmetic(type);
      for (int rank = 0; rank < ranks; rank++) {
        inputs.add(input(type, combine, rank, count));
      }
      expected = MemorySegment.ofArray(new byte[count * type.bytes()]);
      boolean ring = options.algorithm() != Algorithm.TREE;
      Oracle oracle = new Oracle(options.layout(), ring, ranks, count, type);
      for (int i = 0; i < count; i++) {
        expect(oracle, i);
      }
    }

    private void expect(Oracle oracle, int i) {
      if (type.floating()) {
        BinaryOperator<Double> fold = (own, received) -> soft.combine(combine.op, own, received);
        type.set(expected, i, oracle.fold(i, rank -> ownFloat(rank, i), fold));
      } else {
        BinaryOperator<BigInteger> fold =
            (own, received) -> soft.combine(combine.op, own, received);
        BigInteger sum = oracle.fold(i, rank -> ownInteger(rank, i), fold);
        BigInteger result = combine == Combine.AVG ? sum.divide(BigInteger.valueOf(ranks)) : sum;
        type.setLong(expected, i, result.longValue());
      }
    }

    private double ownFloat(int rank, int i) {
      double value = type.get(inputs.get(rank), i);
      return switch (combine) {
        case AVG -> soft.multiply(value, soft.roundFactor(oneOver(ranks)));
        case MULSUM -> soft.multiply(value, soft.roundFactor(scalar(rank)));
        default -> value;
      };
    }

    private double oneOver(int n) {
      return type == DataType.FLOAT64 ? 1.0 / n : (float) (1.0 / n);
    }

    private BigInteger ownInteger(int rank, int i) {
      BigInteger value = soft.wrap(BigInteger.valueOf(type.getLong(inputs.get(rank), i)));
      return combine == Combine.MULSUM
          ? soft.wrap(value.multiply(BigInteger.valueOf((long) scalar(rank))))
          : value;
    }

    private void check(MemorySegment actual, String where) {
      if (actual.mismatch(expected) < 0) {
        return;
      }
      for (int i = 0; i < expected.byteSize() / type.bytes(); i++) {
        if (type.floating()) {
          long bits = Double.doubleToLongBits(type.get(expected, i));
          if (bits != Double.doubleToLongBits(type.get(actual, i))) {
            assertEquals(type.get(expected, i), type.get(actual, i), where + ", element " + i);
          }
        } else {
          assertEquals(
              type.getLong(expected, i), type.getLong(actual, i), where + ", element " + i);
        }
      }
    }
  }

  /** Random bits for integers and float8; other floats of mixed magnitude, some special. */
  private static MemorySegment input(DataType type, Combine combine, int rank, int count) {
    SplittableRandom random = new SplittableRandom(SEED + 31L * type.code() + 1009L * rank);
    byte[] bytes = new byte[count * type.bytes()];
    random.nextBytes(bytes);
    MemorySegment data = MemorySegment.ofArray(bytes);
    if (!type.floating()) {
      return data;
    }
    double[] special = {0, -0.0, 1e-40, -1e-7, 65504, -3e38, 1 / 0.0, -1 / 0.0, 0 / 0.0};
    int spread = combine == Combine.PROD ? 1 : 6;
    for (int i = 0; i < count; i++) {
      if (type.float8() && i % 7 == 0) {
        continue;
      }
      double value =
          random.nextInt(64) == 0
              ? special[random.nextInt(special.length)]
              : random.nextDouble(-1, 1) * Math.scalb(1.0, random.nextInt(-spread, spread + 1));
      type.set(data, i, new SoftArithmetic(type).roundFactor(value));
    }
    return data;
  }

  static Stream<Arguments> ranksAndLayouts() {
    return IntStream.concat(IntStream.rangeClosed(1, 17), IntStream.of(33, 64))
        .boxed()
        .flatMap(PredictionTest::layouts);
  }

  private static Stream<Arguments> layouts(int ranks) {
    List<Integer> order = shuffled(ranks, 0);
    Layout small = Layout.defaults().withChannels(1).withProtocol(Protocol.LL).withChunkBytes(48);
    Layout simple = Layout.defaults().withChunkBytes(512).withRingOrders(List.of(order));
    Layout nodes = Layout.defaults().withNodes(3, TreePattern.BALANCED_TREE);
    return Stream.of(
        Arguments.of(ranks, "ring", options(Algorithm.RING, small)),
        Arguments.of(ranks, "permuted ring", options(Algorithm.RING, simple)),
        Arguments.of(ranks, "direct, as around a ring", options(Algorithm.DIRECT, small)),
        Arguments.of(ranks, "tree", options(Algorithm.TREE, small)),
        Arguments.of(
            ranks, "tree of nodes", options(Algorithm.TREE, nodes.withTreeOrders(List.of(order)))));
  }

  private static List<Integer> shuffled(int ranks, int salt) {
    List<Integer> order = new ArrayList<>(IntStream.range(0, ranks).boxed().toList());
    Collections.shuffle(order, new Random(SEED + ranks + salt));
    return order;
  }

  private static ReferenceOptions options(Algorithm algorithm, Layout layout) {
    return ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
  }

  @ParameterizedTest(name = "{0} ranks, {1}")
  @MethodSource("ranksAndLayouts")
  void everyTypeAndOperatorHasThePredictedBits(int ranks, String name, ReferenceOptions options) {
    // A few elements per chunk for the small types, several loops for the large ones.
    int count = 20 * ranks + 3;
    DataType[] types = ranks <= 5 ? DataType.values() : SOME_TYPES;
    assertPredicted(options, ranks, new int[] {count}, types, Combine.values());
  }

  static Stream<Arguments> channelsAndProtocols() {
    return Stream.of(2, 3, 5)
        .flatMap(
            ranks ->
                Stream.of(1, 2, 4)
                    .flatMap(
                        channels ->
                            Stream.of(Protocol.values())
                                .flatMap(protocol -> shapes(ranks, channels, protocol))));
  }

  private static Stream<Arguments> shapes(int ranks, int channels, Protocol protocol) {
    Layout plain = Layout.defaults().withChannels(channels).withProtocol(protocol);
    Layout permuted =
        plain
            .withChunkBytes(3 * protocol.grainBytes())
            .withRingOrders(List.of(shuffled(ranks, 1), shuffled(ranks, 2), shuffled(ranks, 3)));
    Layout nodes =
        plain
            .withNodes(2, TreePattern.SPLIT_TREE)
            .withTreeOrders(List.of(shuffled(ranks, 4), shuffled(ranks, 5)));
    return Stream.of(
        Arguments.of(ranks, channels, protocol, "ring", options(Algorithm.RING, plain)),
        Arguments.of(
            ranks, channels, protocol, "permuted rings", options(Algorithm.RING, permuted)),
        Arguments.of(
            ranks, channels, protocol, "permuted, direct", options(Algorithm.DIRECT, permuted)),
        Arguments.of(ranks, channels, protocol, "tree", options(Algorithm.TREE, plain)),
        Arguments.of(ranks, channels, protocol, "tree of nodes", options(Algorithm.TREE, nodes)));
  }

  @ParameterizedTest(name = "{0} ranks, {1} channels, {2}, {3}")
  @MethodSource("channelsAndProtocols")
  void sumsOfAllLayoutsHaveThePredictedBits(
      int ranks, int channels, Protocol protocol, String name, ReferenceOptions options) {
    assertPredicted(options, ranks, new int[] {5, 34_567}, SOME_TYPES, new Combine[] {Combine.SUM});
  }

  // Derived by hand from runRing in NCCL's all_reduce.h: chunks of 8 elements, the fold of chunk c
  // starts at rank c + 1. Above 2048, float16 has only even numbers.
  @Test
  void fourRanksOnARingRoundWhereNcclDoes() {
    double[] ofRanks = {2048, 1, 1, 0.5};
    double[] ofChunks = {
      2050, // 1 + 1 + 0.5, + 2048 = 2050.5
      2052, // 1 + 0.5, + 2048 = 2049.5 -> 2050, + 1 = 2051
      2048, // 0.5 + 2048 -> 2048, and each 1 is lost
      2048 // 2048 + 1 -> 2048, and so on
    };
    ReferenceOptions pinned =
        options(Algorithm.RING, Layout.defaults().withChannels(1).withProtocol(Protocol.LL));
    assertSums(pinned, ofRanks, 29, i -> ofChunks[i / 8]);
  }

  // From runTreeSplit: rank 2 folds its own data, then rank 1's, then rank 3's; rank 0 is the root.
  @Test
  void fourRanksInATreeRoundWhereNcclDoes() {
    double[] ofRanks = {0, 1, 2048, 1.5};
    // 2048 + 1 -> 2048, + 1.5 = 2049.5. In the opposite order it would be 2052.
    ReferenceOptions pinned = options(Algorithm.TREE, Layout.defaults().withChannels(1));
    assertSums(pinned, ofRanks, 29, i -> 2050);
  }

  // The chain of one node: rank 3 sends, 2 and 1 fold their own data, 0 has the result.
  @Test
  void fourRanksOfOneNodeRoundWhereNcclDoes() {
    double[] ofRanks = {1, 1, 2048, 1.5};
    // 2048 + 1.5 = 2049.5 -> 2050, + 1 = 2051 -> 2052, + 1 = 2053.
    ReferenceOptions pinned =
        options(
            Algorithm.TREE,
            Layout.defaults().withChannels(1).withNodes(4, TreePattern.BALANCED_TREE));
    assertSums(pinned, ofRanks, 29, i -> 2052);
  }

  private static void assertSums(
      ReferenceOptions options, double[] ofRanks, int count, IntToDoubleFunction expected) {
    Ranks.run(
        ofRanks.length,
        options,
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.FLOAT16, count)) {
            for (int i = 0; i < count; i++) {
              DataType.FLOAT16.set(data.segment(), i, ofRanks[comm.rank()]);
            }
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
            for (int i = 0; i < count; i++) {
              double found = DataType.FLOAT16.get(data.segment(), i);
              assertEquals(expected.applyAsDouble(i), found, "element " + i);
            }
          }
        });
  }

  private void assertPredicted(
      ReferenceOptions options, int ranks, int[] counts, DataType[] types, Combine[] combines) {
    Map<String, Sample> samples = new ConcurrentHashMap<>();
    Ranks.run(
        ranks,
        options,
        (comm, stream) -> {
          for (int count : counts) {
            for (DataType type : types) {
              for (Combine combine : combines) {
                String where = combine + " of " + count + " " + type + " (seed " + SEED + ")";
                Sample sample =
                    samples.computeIfAbsent(
                        where, key -> new Sample(options, ranks, count, type, combine));
                try (Buffer data = comm.newBuffer(type, count)) {
                  data.copyFromAsync(sample.inputs.get(comm.rank()), stream);
                  combine.allReduce(comm, data, stream);
                  stream.synchronize();
                  sample.check(data.segment(), where);
                }
                stream.synchronize();
              }
            }
          }
        });
  }
}
