package io.nccl4j.internal.reference.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import java.util.Arrays;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Compares averages, which multiply and shift, with scalar division. */
class Int32KernelTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 63, 64, 100, 1000, 32768})
  void averagesTruncate(int ranks) {
    int[] sums = sums(ranks);
    int[] signed = sums.clone();
    new Int32Kernel(false).divide(signed, ranks, signed.length);
    assertArrayEquals(Arrays.stream(sums).map(sum -> sum / ranks).toArray(), signed);
    int[] unsigned = sums.clone();
    new Int32Kernel(true).divide(unsigned, ranks, unsigned.length);
    assertArrayEquals(
        Arrays.stream(sums).map(sum -> Integer.divideUnsigned(sum, ranks)).toArray(), unsigned);
  }

  /** Returns multiples and their neighbours, the ends of the range, and random numbers. */
  private static int[] sums(int ranks) {
    IntStream around =
        IntStream.rangeClosed(-200, 200)
            .flatMap(
                factor -> IntStream.of(factor * ranks - 1, factor * ranks, factor * ranks + 1));
    IntStream ends =
        IntStream.range(0, 200)
            .flatMap(i -> IntStream.of(Integer.MIN_VALUE + i, Integer.MAX_VALUE - i));
    IntStream any = new Random(SEED).ints(1000);
    return IntStream.concat(IntStream.concat(around, ends), any).toArray();
  }
}
