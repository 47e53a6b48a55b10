package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.util.EnumMap;
import java.util.Map;

/**
 * What one reduction does to elements: picked once for the type and the operator, then applied to
 * whole slices. It belongs to one member and is used by one thread at a time.
 *
 * <p>Each step rounds to the type, as NCCL's ring and tree do. An average of floats multiplies each
 * rank's own data by 1/n beforehand; one of integers divides the sum at the end.
 */
public final class Reduction {
  private final Map<DataType, Kernel> kernels = new EnumMap<>(DataType.class);
  private final Map<DataType, Kernel> extremeKernels = new EnumMap<>(DataType.class);
  private final Map<DataType, Long> averageFactors = new EnumMap<>(DataType.class);
  private DataType type;
  private ReductionOp.Kind picked;
  private long bytes;
  private Kernel kernel;
  private ReductionOp.Kind combine;
  private boolean scales;
  private boolean divides;
  private long factor;
  private int ranks;

  /**
   * Picks what does a reduction.
   *
   * @param nextBytes what each rank reduces
   */
  public void prepare(DataType nextType, ReductionOp operator, int worldSize, long nextBytes) {
    // Most reductions are as the one before; but what a factor is may change in its memory.
    if (nextType != type
        || operator.kind() != picked
        || nextBytes != bytes
        || picked == ReductionOp.Kind.MULSUM) {
      forget();
      picked = null;
      type = nextType;
      bytes = nextBytes;
      ranks = worldSize;
      pick(operator);
      picked = operator.kind();
    }
  }

  private void pick(ReductionOp operator) {
    ReductionOp.Kind kind = operator.kind();
    kernel = kernel(type, kind == ReductionOp.Kind.MAX || kind == ReductionOp.Kind.MIN);
    kernel.prepare(bytes);
    boolean average = kind == ReductionOp.Kind.AVG;
    scales = kind == ReductionOp.Kind.MULSUM || (average && type.floating());
    divides = average && !type.floating();
    combine = scales || divides ? ReductionOp.Kind.SUM : kind;
    factor = scales ? (average ? averageFactor(type) : operator.factor(type)) : 0;
  }

  private Kernel kernel(DataType type, boolean extremes) {
    Map<DataType, Kernel> made = extremes ? extremeKernels : kernels;
    Kernel known = made.get(type);
    if (known == null) {
      known = extremes ? Kernels.ofExtremes(type) : Kernels.of(type);
      made.put(type, known);
    }
    return known;
  }

  private long averageFactor(DataType type) {
    Long known = averageFactors.get(type);
    if (known == null) {
      known = ReductionOp.averageFactor(type, ranks);
      averageFactors.put(type, known);
    }
    return known;
  }

  /** Returns whether a rank's data is multiplied before anything else happens to it. */
  public boolean scales() {
    return scales;
  }

  /** Returns what this rank's data is multiplied with, as raw bits of the type. */
  public long factor() {
    return factor;
  }

  /**
   * Folds what all ranks have at some place, one after the other, and stores the result there to
   * every rank.
   *
   * @param from where each rank's data lies
   * @param factors what each rank's data is multiplied with, if the operator multiplies
   * @param order the ranks
   * @param first where in {@code order} to begin; every rank is taken once
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

  /** Writes a rank's own data, multiplied as the operator wants it. */
  public void scale(
      MemorySegment own, long ownOffset, MemorySegment out, long outOffset, long count) {
    kernel.scale(factor, own, ownOffset, out, outOffset, count);
  }

  /** Does to one rank's data what a reduction over that rank alone does. */
  public void alone(
      MemorySegment own, long ownOffset, MemorySegment out, long outOffset, long count) {
    if (scales) {
      scale(own, ownOffset, out, outOffset, count);
    } else if (own.address() + ownOffset != out.address() + outOffset) {
      long bytes = count * kernel.elementBytes();
      MemorySegment.copy(own, ownOffset, out, outOffset, bytes);
    }
  }

  /** Folds what came from other ranks onto a rank's own data. */
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

  /** Combines two runs that have been multiplied already, as the operator wants them. */
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

  /** Folds what came from other ranks onto an earlier result, which is not multiplied again. */
  public void foldMore(
      MemorySegment sum,
      long sumOffset,
      MemorySegment partial,
      long partialOffset,
      long count,
      boolean last) {
    foldScaled(sum, sumOffset, partial, partialOffset, sum, sumOffset, count, last);
  }

  /** Keeps no memory reachable that it has worked on. */
  public void forget() {
    if (kernel != null) {
      kernel.forget();
    }
  }
}
