package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.util.function.Function;

/**
 * Kernel for maximum and minimum of floating-point numbers. Its tiles contain the raw bits, which
 * {@link FloatTotalOrder} compares as integers.
 *
 * @param <A> the type of the array of bits
 */
abstract class MinMaxKernel<A> extends ArrayKernel<A> {
  MinMaxKernel(int elementBytes, A own, A other, Function<A, MemorySegment> view) {
    super(elementBytes, own, other, view);
  }

  private static UnsupportedOperationException unsupported() {
    return new UnsupportedOperationException("this kernel supports only maximum and minimum");
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
