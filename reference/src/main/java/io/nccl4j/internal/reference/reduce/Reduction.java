package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.util.EnumMap;
import java.util.Map;

/**
 * The arithmetic of one reduction: selected once for the type and the operator, then applied to
 * whole slices. It belongs to one rank and is used by one thread at a time.
 *
 * <p>Each step rounds to the type, as NCCL's ring and tree do. An average of floats multiplies each
 * rank's own data by 1/n beforehand; one of integers divides the sum at the end.
 */
public final class Reduction {
  private final Map<DataType, Kernel<?>> kernels = new EnumMap<>(DataType.class);
  private final Map<DataType, Kernel<?>> minMaxKernels = new EnumMap<>(DataType.class);
  private Kernel<?> kernel;
  private ReductionOp.Kind combine;
  private boolean scales;
  private long factor;
  // The divisor of the last result; 1 for none.
  private int divisor;

  /** Prepares the next reduction. */
  public void prepare(DataType type, ReductionOp operator, int ranks) {
    ReductionOp.Kind kind = operator.kind();
    boolean average = kind == ReductionOp.Kind.AVG;
    kernel =
        kind == ReductionOp.Kind.MAX || kind == ReductionOp.Kind.MIN
            ? minMaxKernels.computeIfAbsent(type, Kernels::ofMinMax)
            : kernels.computeIfAbsent(type, Kernels::of);
    scales = kind == ReductionOp.Kind.MULSUM || (average && type.floating());
    divisor = average && !type.floating() ? ranks : 1;
    combine = scales || average ? ReductionOp.Kind.SUM : kind;
    factor = !scales ? 0 : average ? ReductionOp.averageFactor(type, ranks) : operator.factor(type);
  }

  /** Returns whether each rank's own data is multiplied by a factor before it is combined. */
  public boolean scales() {
    return scales;
  }

  /** Returns the factor by which this rank's data is multiplied, as raw bits of the type. */
  public long factor() {
    return factor;
  }

  /**
   * Folds the data of all ranks at an offset, in order, and stores the result to every rank at the
   * same offset.
   *
   * @param from the input of each rank
   * @param factors the factor by which each rank's data is multiplied, if {@link #scales}
   * @param order the ranks in the order of the fold
   * @param to the output of each rank
   */
  public void reduce(
      MemorySegment[] from,
      long[] factors,
      int[] order,
      MemorySegment[] to,
      long offset,
      long count) {
    kernel.reduce(combine, from, scales, factors, order, to, offset, count, divisor);
  }

  /** Writes a rank's own data multiplied by the factor. */
  public void scale(
      MemorySegment own, long ownOffset, MemorySegment out, long outOffset, long count) {
    kernel.scale(factor, own, ownOffset, out, outOffset, count);
  }

  /** Performs a reduction over a single rank: scales or copies its data. */
  public void reduceSingleRank(
      MemorySegment own, long ownOffset, MemorySegment out, long outOffset, long count) {
    if (scales) {
      scale(own, ownOffset, out, outOffset, count);
    } else if (own.address() + ownOffset != out.address() + outOffset) {
      long bytes = count * kernel.elementBytes();
      MemorySegment.copy(own, ownOffset, out, outOffset, bytes);
    }
  }

  /** Folds a partial result of other ranks onto a rank's own data. */
  public void fold(
      MemorySegment own,
      long ownOffset,
      MemorySegment partial,
      long partialOffset,
      MemorySegment out,
      long outOffset,
      long count,
      boolean last) {
    kernel.combine(
        combine,
        own,
        ownOffset,
        scales,
        factor,
        partial,
        partialOffset,
        out,
        outOffset,
        count,
        last ? divisor : 1);
  }

  /** Folds a partial result of other ranks onto an earlier result, which is not scaled again. */
  public void foldMore(
      MemorySegment sum,
      long sumOffset,
      MemorySegment partial,
      long partialOffset,
      long count,
      boolean last) {
    kernel.combine(
        combine,
        sum,
        sumOffset,
        false,
        0,
        partial,
        partialOffset,
        sum,
        sumOffset,
        count,
        last ? divisor : 1);
  }
}
