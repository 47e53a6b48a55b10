package io.nccl4j.internal.reference.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import java.util.Arrays;
import java.util.Random;
import java.util.stream.LongStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Compares averages, which shift where possible, with scalar division. */
class Int64KernelTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4, 7, 8, 64, 100, 1024})
  void averagesTruncate(int ranks) {
    System.out.println("seed " + SEED);
    LongStream around = LongStream.rangeClosed(-300, 300);
    LongStream ends =
        LongStream.range(0, 100)
            .flatMap(i -> LongStream.of(Long.MIN_VALUE + i, Long.MAX_VALUE - i));
    LongStream any = new Random(SEED).longs(200);
    long[] sums = LongStream.concat(LongStream.concat(around, ends), any).toArray();
    long[] signed = sums.clone();
    new Int64Kernel(false).divide(signed, ranks, signed.length);
    assertArrayEquals(Arrays.stream(sums).map(sum -> sum / ranks).toArray(), signed);
    long[] unsigned = sums.clone();
    new Int64Kernel(true).divide(unsigned, ranks, unsigned.length);
    assertArrayEquals(
        Arrays.stream(sums).map(sum -> Long.divideUnsigned(sum, ranks)).toArray(), unsigned);
  }
}
