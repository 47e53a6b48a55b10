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
  private final Map<DataType, Kernel> kernels = new EnumMap<>(DataType.class);
  private final Map<DataType, Kernel> minMaxKernels = new EnumMap<>(DataType.class);
  private final Map<DataType, Long> averageFactors = new EnumMap<>(DataType.class);
  private DataType type;
  private ReductionOp.Kind selectedKind;
  private long bytes;
  private Kernel kernel;
  private ReductionOp.Kind combine;
  private boolean scales;
  private boolean divides;
  private long factor;
  private int ranks;

  /**
   * Prepares the next reduction.
   *
   * @param nextBytes the size of each rank's data in bytes
   */
  public void prepare(DataType nextType, ReductionOp operator, int rankCount, long nextBytes) {
    // Most reductions are like the previous one; but a scalar may have changed in its memory.
    if (nextType != type
        || operator.kind() != selectedKind
        || nextBytes != bytes
        || selectedKind == ReductionOp.Kind.MULSUM) {
      forget();
      selectedKind = null;
      type = nextType;
      bytes = nextBytes;
      ranks = rankCount;
      select(operator);
      selectedKind = operator.kind();
    }
  }

  private void select(ReductionOp operator) {
    ReductionOp.Kind kind = operator.kind();
    kernel = kernel(type, kind == ReductionOp.Kind.MAX || kind == ReductionOp.Kind.MIN);
    kernel.prepare(bytes);
    boolean average = kind == ReductionOp.Kind.AVG;
    scales = kind == ReductionOp.Kind.MULSUM || (average && type.floating());
    divides = average && !type.floating();
    combine = scales || divides ? ReductionOp.Kind.SUM : kind;
    factor = scales ? (average ? averageFactor(type) : operator.factor(type)) : 0;
  }

  private Kernel kernel(DataType type, boolean minMax) {
    Map<DataType, Kernel> cache = minMax ? minMaxKernels : kernels;
    Kernel cached = cache.get(type);
    if (cached == null) {
      cached = minMax ? Kernels.ofMinMax(type) : Kernels.of(type);
      cache.put(type, cached);
    }
    return cached;
  }

  private long averageFactor(DataType type) {
    Long cached = averageFactors.get(type);
    if (cached == null) {
      cached = ReductionOp.averageFactor(type, ranks);
      averageFactors.put(type, cached);
    }
    return cached;
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
   * @param order the ranks
   * @param first the index in {@code order} at which to begin; every rank is used once
   * @param to the output of each rank
   */
  public void reduce(
      MemorySegment[] from,
      long[] factors,
      int[] order,
      int first,
      MemorySegment[] to,
      long offset,
      long count) {
    kernel.reduce(
        combine, from, scales, factors, order, first, to, offset, count, divides ? ranks : 1);
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
        last && divides ? ranks : 1);
  }

  /** Combines two ranges that have already been scaled. */
  public void foldScaled(
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
        false,
        0,
        partial,
        partialOffset,
        out,
        outOffset,
        count,
        last && divides ? ranks : 1);
  }

  /** Folds a partial result of other ranks onto an earlier result, which is not scaled again. */
  public void foldMore(
      MemorySegment sum,
      long sumOffset,
      MemorySegment partial,
      long partialOffset,
      long count,
      boolean last) {
    foldScaled(sum, sumOffset, partial, partialOffset, sum, sumOffset, count, last);
  }

  /** Drops all references to memory. */
  public void forget() {
    if (kernel != null) {
      kernel.forget();
    }
  }
}
