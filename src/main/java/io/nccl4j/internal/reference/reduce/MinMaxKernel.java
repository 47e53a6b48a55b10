package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.util.function.Function;

/**
 * Loops for maximum and minimum of floating-point numbers, whose tiles hold bits: {@link
 * FloatTotalOrder} compares them as integers.
 *
 * @param <A> the array that holds bits
 */
abstract class MinMaxKernel<A> extends ArrayKernel<A> {
  MinMaxKernel(int elementBytes, A own, A other, Function<A, MemorySegment> view) {
    super(elementBytes, own, other, view);
  }

  private static UnsupportedOperationException unsupported() {
    return new UnsupportedOperationException("a kernel for maximum and minimum only");
  }

  @Override
  final void sum(A left, A right, int count) {
    throw unsupported();
  }

  @Override
  final void prod(A left, A right, int count) {
    throw unsupported();
  }

  @Override
  final void scale(A tile, long factor, int count) {
    throw unsupported();
  }
}
